"""What answers were made with, so that answers of different settings never mix, and how their histories are measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mlmf.base_model import load_tokenizer
from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.llm.load import token_counter as server_token_counter
from mlmf.paths import sha256_of
from mlmf.systems.build import system_settings


def answer_settings(system: str, config: EvalConfig, seed: int, data: LoadedData) -> dict[str, Any]:
    """Everything that may change an answer under one seed. Batch size, device and limit do not; text systems share the prompt settings.

    ``checkpoint_sha256`` is of the one checkpoint that answers, or lists one for each fold.
    """
    settings: dict[str, Any] = {
        "system": system,
        "task": data.task,
        "data_sha256": data.sha256,
        "probes_sha256": data.probes_sha256,
        "captions": config.captions,
        "retention": config.retention,
        "max_new_tokens": config.max_new_tokens,
        "seed": seed,
        "checkpoint_sha256": None,
        "checkpoint_base": None,
        "fold_seed": None,
    }
    if config.uses_checkpoint(system):
        digests = [folder_sha256(Path(str(part.checkpoint))) for _, part in config.parts(system, seed)]
        settings["checkpoint_sha256"] = digests[0] if config.folds is None else digests
        if config.folds is not None:
            settings["fold_seed"] = config.fold_seed
        if config.checkpoint_base is not None:
            # the last part only: results name no place on the machine they come from
            settings["checkpoint_base"] = Path(config.checkpoint_base).name
    settings |= system_settings(system, config)
    return settings


def folder_sha256(folder: Path) -> str:
    """One sha256 over the names and contents of a checkpoint's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".safetensors"):
            digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def token_counter(config: EvalConfig) -> Callable[[str], int]:
    """Counts the tokens of a conversation, the same for every system of a run.

    Raises:
        UserError: the checkpoint, the base model or the server's tokenizer setting leads to no tokenizer.
    """
    if config.answer_model == "server":
        return server_token_counter(config.llm)
    tokenizer: PreTrainedTokenizerBase
    if config.checkpoint is None:
        tokenizer = load_tokenizer(config.base_model)
    elif (folder := Path(config.checkpoint) / "tokenizer").is_dir():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        raise UserError(f"checkpoint {config.checkpoint}: holds no tokenizer, so train.py did not save it")
    return lambda text: len(tokenizer(text, add_special_tokens=False).input_ids)


def memory_in_use() -> int:
    """Bytes: the peak of the CUDA device since :func:`forget_peak`, or what the process holds now where there is none."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return int(psutil.Process().memory_info().rss)


def forget_peak() -> None:
    """Start measuring the peak of the CUDA device anew, for the next system."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
