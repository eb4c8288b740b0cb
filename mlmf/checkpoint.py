"""Composite checkpoints: ``config.json``, memory weights and adapter as safetensors, tokenizer and card. No pickle."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mlmf import __version__
from mlmf.card import model_card
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.paths import atomic_folder

if TYPE_CHECKING:
    from mlmf.model import MLMFModel

logger = logging.getLogger(__name__)

FORMAT = "mlmf-checkpoint-6"
KEYS = ("base_model", "base_weights", "hidden_size", "memory")
CONFIG, MEMORY, ADAPTER, CARD = "config.json", "memory.safetensors", "adapter", "README.md"


def save(model: MLMFModel, path: str | Path, extra: dict[str, Any] | None = None) -> None:
    """Write a checkpoint folder, whole or not at all.

    Args:
        model: the model.
        path: folder; replaced if it holds a checkpoint, refused if it holds anything else.
        extra: facts about the training, kept in ``config.json`` under ``"training"``.
    """
    path = Path(path)
    if path.is_file():
        raise UserError(f"{path} is a file: give a folder")
    if path.exists() and any(path.iterdir()) and not _is_ours(path):
        raise UserError(f"{path} is not empty and holds no checkpoint: choose another folder")
    config = {
        "format": FORMAT,
        "mlmf_version": __version__,
        "base_model": _portable_name(model.config.base_model),
        "base_weights": model.base_digest,
        "hidden_size": model.lm.config.hidden_size,
        "memory": {k: v for k, v in asdict(model.config).items() if k != "base_model"},
        "training": extra or {},
    }
    weights = {name: tensor.detach().contiguous().cpu() for name, tensor in model.memory.state_dict().items()}
    with atomic_folder(path) as partial:
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        save_file(weights, partial / MEMORY, {"format": "pt"})
        if isinstance(model.lm, PeftModel):
            model.lm.peft_config["default"].base_model_name_or_path = config["base_model"]
            # without "auto" peft would look for the base model on the hub
            model.lm.save_pretrained(str(partial / ADAPTER), save_embedding_layers=False)
            (partial / ADAPTER / CARD).unlink(missing_ok=True)
        model.tokenizer.save_pretrained(str(partial / "tokenizer"))
        (partial / CARD).write_text(model_card(config, _stages(config)), encoding="utf-8")


def _is_ours(path: Path) -> bool:
    """Whether a folder holds a checkpoint, of this version or of an older one that cannot be read any more."""
    try:
        data = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return False
    return isinstance(data, dict) and str(data.get("format")).startswith(FORMAT.rstrip("0123456789"))


def read_config(path: str | Path) -> MLMFConfig:
    """The model settings of a checkpoint.

    Raises:
        UserError: not a checkpoint, or one whose settings this version does not know.
    """
    return _memory_config(read_metadata(path), Path(path) / CONFIG)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The whole of ``config.json``, with what was said about the training."""
    file = Path(path) / CONFIG
    if not file.is_file():
        raise UserError(f"no checkpoint at {path}: {CONFIG} is missing. Give a folder written by save_pretrained")
    try:
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not valid JSON: {error}") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        older = "; train it again with this version" if str(found).startswith("mlmf-checkpoint-") else ""
        raise UserError(f"{file} is not an mlmf checkpoint: format is {found!r}, wanted {FORMAT!r}{older}")
    missing = [key for key in KEYS if key not in data]
    if missing:
        raise UserError(f"{file} does not fit this version of mlmf: {missing[0]} is missing")
    return data


def training_stages(path: str | Path) -> list[dict[str, Any]]:
    """What is known of each training that made a checkpoint, one started from the other, the first one first."""
    return _stages(read_metadata(path))


def _stages(config: dict[str, Any]) -> list[dict[str, Any]]:
    facts = dict(config["training"])
    earlier: list[dict[str, Any]] = facts.pop("earlier_stages", [])
    return [*earlier, facts] if facts else []


def _memory_config(data: dict[str, Any], file: Path) -> MLMFConfig:
    try:
        memory = dict(data["memory"])
        return MLMFConfig(base_model=data["base_model"], **{**memory, "lora": LoraSettings(**memory["lora"])})
    except (KeyError, TypeError) as error:
        raise UserError(f"{file} does not fit this version of mlmf: {error}") from error


def load_weights(model: MLMFModel, path: str | Path) -> None:
    """Fill a fresh model with a checkpoint's memory weights and adapter.

    Raises:
        UserError: files missing, or made for another base model.
    """
    path = Path(path)
    metadata = read_metadata(path)
    width = metadata["hidden_size"]
    if width != model.lm.config.hidden_size:
        raise UserError(
            f"{path} was trained on a base model of width {width}, "
            f"{model.config.base_model!r} has {model.lm.config.hidden_size}: load the base model it names"
        )
    _load_memory(model, path / MEMORY)
    if isinstance(model.lm, PeftModel):
        result: Any = set_peft_model_state_dict(model.lm, _tensors(path / ADAPTER / "adapter_model.safetensors"))
        missing = [key for key in result.missing_keys if "lora_" in key]
        if missing:
            raise UserError(f"{path / ADAPTER} is incomplete: {missing[0]} is missing")
        if result.unexpected_keys:
            raise UserError(
                f"{path / ADAPTER} belongs to another base model: {result.unexpected_keys[0]} fits nowhere"
            )
    if metadata["base_weights"] != model.base_digest:
        logger.warning(
            "%s was trained on other weights of %s (such as full against quantised ones): expect other answers",
            path, model.config.base_model,
        )  # fmt: skip


def _load_memory(model: MLMFModel, file: Path) -> None:
    try:
        model.memory.load_state_dict(_tensors(file))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(f"{file} does not fit {model.config.base_model!r}: {reason}") from error


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    if not file.is_file():
        raise UserError(f"{file} is missing: the checkpoint is incomplete")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file} is damaged: {error}") from error


def _portable_name(base_model: str) -> str:
    """A local folder is remembered by its last part only: a checkpoint names no place on the machine it came from."""
    return Path(base_model).name if Path(base_model).is_absolute() else base_model
