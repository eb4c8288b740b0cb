from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf import checkpoint
from mlmf.base_model import resolve_base
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

SESSION = Session(0, datetime(2023, 5, 8), (Turn("a", "Anna", "I adopted a cat"), Turn("b", "Ben", "Lovely!")))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny base models as Hugging Face folders: llama, gpt2, and a narrow llama."""
    root = tmp_path_factory.mktemp("bases")
    models: dict[str, tuple[Architecture, int]] = {
        "llama": ("llama", 64),
        "gpt2": ("gpt2", 64),
        "narrow": ("llama", 32),
    }
    for name, (architecture, width) in models.items():
        tiny_model(architecture, width=width).save_pretrained(root / name)
        tiny_tokenizer().save_pretrained(root / name)
    return root


def trained(base: Path | str, **settings: object) -> MLMFModel:
    """A model that no longer is what a fresh one would be."""
    config = MLMFConfig(**{"lora": LoraSettings(r=4), **settings})  # type: ignore[arg-type]
    return disturb(MLMFModel.from_base(str(base), config, dtype=torch.float32))


@torch.no_grad()
def disturb(model: MLMFModel) -> MLMFModel:
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.startswith("memory.") or "lora_" in name:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.02 * noise.to(parameter.dtype) + (0.4 if name.endswith(".g") else 0.0))
    model.memory.key_projection.calibrate(torch.randn(50, model.memory.width, generator=generator))
    return model


@torch.no_grad()
def logits(model: MLMFModel) -> torch.Tensor:
    ids = torch.tensor([model.tokenizer("Question: Which cat?\nAnswer:")["input_ids"]])
    return model(ids, state=model.remember([SESSION], model.init_state())).logits


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("r", [4, 0])
def test_a_loaded_model_is_the_saved_one_to_the_bit(bases: Path, tmp_path: Path, name: str, r: int) -> None:
    model = trained(bases / name, lora=LoraSettings(r=r), c_e=8, k=5, alpha_mode="scalar")
    model.save_pretrained(tmp_path / "out")
    loaded = MLMFModel.from_pretrained(tmp_path / "out", base_model=str(bases / name), dtype=torch.float32)
    assert torch.equal(logits(loaded), logits(model))
    assert not torch.equal(logits(loaded), logits(MLMFModel.from_base(str(bases / name), dtype=torch.float32)))
    assert (loaded.config.c_e, loaded.config.k, loaded.config.alpha_mode) == (8, 5, "scalar")
    assert loaded.config.lora == LoraSettings(r=r)
    assert (tmp_path / "out" / "adapter").is_dir() == (r > 0)


def test_smollm2_comes_back_to_the_bit(
    smollm2: tuple[PreTrainedModel, PreTrainedTokenizerBase], tmp_path: Path
) -> None:
    lm, tokenizer = smollm2
    model = disturb(MLMFModel(copy.deepcopy(lm), tokenizer, MLMFConfig(lora=LoraSettings(r=2))).eval())
    model.save_pretrained(tmp_path / "out")
    expected = logits(model)
    del model
    loaded = MLMFModel.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    assert torch.equal(logits(loaded), expected)
    places = (str(tmp_path), str(Path.home()), resolve_base("smollm2-135m"))
    for file in (tmp_path / "out").rglob("*"):
        if file.suffix in {".json", ".md", ".jinja", ".txt"}:
            assert not any(place in file.read_text(encoding="utf-8") for place in places), file.name


def test_the_folder_names_no_place_and_holds_no_pickle(bases: Path, tmp_path: Path) -> None:
    trained(bases / "llama").save_pretrained(tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    names = {str(path.relative_to(tmp_path / "out")) for path in files}
    assert {"config.json", "memory.safetensors", "README.md", "adapter/adapter_model.safetensors"} <= names
    assert {"adapter/adapter_config.json", "tokenizer/tokenizer.json"} <= names
    assert not {".bin", ".pt", ".pth", ".pkl", ".ckpt"} & {path.suffix for path in files}
    for file in files:
        if file.suffix in {".json", ".md", ".jinja"}:
            text = file.read_text(encoding="utf-8")
            assert str(bases) not in text and str(tmp_path) not in text, file.name
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["format"] == "mlmf-checkpoint-6" and config["base_model"] == "llama"
    # what a conversation told the model is no part of it
    assert not any(b"adopted" in content for content in bytes_of(tmp_path / "out").values())


def test_model_and_memories_outlive_a_move_of_the_base_model(bases: Path, tmp_path: Path) -> None:
    model = trained(bases / "llama")
    model.save_pretrained(tmp_path / "out")
    with torch.no_grad():
        model.remember([SESSION], model.init_state()).save(tmp_path / "memory.safetensors")
    assert str(bases).encode() not in (tmp_path / "memory.safetensors").read_bytes()
    shutil.copytree(bases / "llama", tmp_path / "elsewhere" / "llama")
    moved = MLMFModel.from_pretrained(
        tmp_path / "out", base_model=str(tmp_path / "elsewhere" / "llama"), dtype=torch.float32
    )
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        expected = model(ids, state=model.remember([SESSION], model.init_state())).logits
        assert torch.equal(moved(ids, state=MemoryState.load(tmp_path / "memory.safetensors")).logits, expected)


def test_what_was_said_about_the_training_is_kept(bases: Path, tmp_path: Path) -> None:
    checkpoint.save(trained(bases / "llama"), tmp_path / "out", {"task": "locco", "seed": 7})
    assert checkpoint.read_metadata(tmp_path / "out")["training"] == {"task": "locco", "seed": 7}
    assert "1. locco; seed: 7" in (tmp_path / "out" / "README.md").read_text()


# ---------------------------------------------------------------- refused


@pytest.fixture(scope="module")
def saved(bases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "out"
    trained(bases / "llama").save_pretrained(folder)
    return folder


def edit_config(**changes: object) -> Callable[[Path], None]:
    """Set keys of config.json, or remove those given as None."""

    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config = {key: value for key, value in {**config, **changes}.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(config))

    return edit


def truncate(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100]) and None


def drop_half(folder: Path) -> None:
    file = folder / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    kept = {name: tensor.clone() for name, tensor in list(tensors.items())[::2]}
    file.unlink()
    save_file(kept, file)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "broken json": (lambda f: (f / "config.json").write_text('{"format": ') and None, "config.json is not valid JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[1]") and None, "config.json"),
    "not utf-8": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{") and None, "config.json"),
    "other format": (edit_config(format="mlmf-checkpoint-99"), "format is 'mlmf-checkpoint-99'"),
    "no format": (edit_config(format=None, model_type="llama"), "is not an mlmf checkpoint"),
    "an older format": (edit_config(format="mlmf-checkpoint-1"), "train it again with this version"),
    "no memory settings": (edit_config(memory=None), "config.json"),
    "unknown setting": (edit_config(memory={"lora": {}, "c_q": 3}), "c_q"),
    "no width": (edit_config(hidden_size=None), "config.json"),
    "no memory weights": (lambda f: (f / "memory.safetensors").unlink(), "memory.safetensors is missing"),
    "half the memory": (truncate("memory.safetensors"), "memory.safetensors"),
    "no adapter": (
        lambda f: (f / "adapter" / "adapter_model.safetensors").unlink(), "adapter_model.safetensors is missing",
    ),
    "some adapter weights": (drop_half, "adapter"),
    "half the adapter": (truncate("adapter/adapter_model.safetensors"), "adapter_model.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named(bases: Path, saved: Path, tmp_path: Path, kind: str) -> None:
    damage, message = DAMAGE[kind]
    folder = tmp_path / "out"
    for name, content in bytes_of(saved).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    damage(folder)
    with pytest.raises(UserError, match=message):
        MLMFModel.from_pretrained(folder, base_model=str(bases / "llama"))


@pytest.mark.parametrize(("other", "message"), [("narrow", "width 64"), ("gpt2", "does not fit")])
def test_another_base_model_is_refused(bases: Path, saved: Path, other: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        MLMFModel.from_pretrained(saved, base_model=str(bases / other))


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint at"):
        MLMFModel.from_pretrained(tmp_path / "nowhere")


def test_a_base_model_that_is_not_there_is_named(saved: Path) -> None:
    with pytest.raises(UserError, match="'llama'"):
        MLMFModel.from_pretrained(saved)


# ---------------------------------------------------------------- replacing


def test_a_checkpoint_replaces_a_checkpoint(bases: Path, saved: Path, tmp_path: Path) -> None:
    trained(bases / "llama", c_e=8).save_pretrained(tmp_path / "out")
    trained(bases / "llama", lora=LoraSettings(r=0)).save_pretrained(tmp_path / "out")
    assert checkpoint.read_config(tmp_path / "out").lora.r == 0
    assert not (tmp_path / "out" / "adapter").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    # one of an older format cannot be read, but is no stranger
    file = tmp_path / "out" / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace(checkpoint.FORMAT, "mlmf-checkpoint-1"), encoding="utf-8")
    trained(bases / "llama").save_pretrained(tmp_path / "out")
    assert checkpoint.read_config(tmp_path / "out").lora.r


def test_a_failed_save_leaves_the_old_checkpoint_whole(
    bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(bases / "llama")
    model.save_pretrained(tmp_path / "out")
    before = bytes_of(tmp_path / "out")

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    monkeypatch.undo()
    model.save_pretrained(tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before


@pytest.mark.parametrize("file", ["notes.txt", "config.json"])
def test_a_folder_with_other_things_is_refused_and_left_alone(bases: Path, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    # a config.json that is not ours is somebody's model
    (folder / file).write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"precious")
    before = bytes_of(folder)
    with pytest.raises(UserError, match="choose another folder"):
        trained(bases / "llama").save_pretrained(folder)
    assert bytes_of(folder) == before


def test_an_empty_folder_is_welcome_and_a_file_is_not(bases: Path, tmp_path: Path) -> None:
    model = trained(bases / "llama")
    (tmp_path / "empty").mkdir()
    model.save_pretrained(tmp_path / "empty")
    assert checkpoint.read_config(tmp_path / "empty").base_model == "llama"
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file"):
        model.save_pretrained(tmp_path / "file")
