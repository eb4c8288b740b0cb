"""Statistics of words from all the training data, and of codes and keys from a sample, taken once and kept on disk."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mlmf.memory.features import session_pieces
from mlmf.model import MLMFModel
from mlmf.paths import atomic_path
from mlmf.types import Session

logger = logging.getLogger(__name__)

MOST_TOKENS = 16384
"""Tokens of the sample that are looked at, spread over it: more change the directions little and take memory."""


def calibrate(model: MLMFModel, sessions: Sequence[Session], root: Path, count: int = 64) -> None:
    """Count the words of all sessions, and calibrate ``model.memory`` on up to ``count`` spread over the data.

    Which words are rare is counted each time. The rest is kept in ``root/calibration`` and taken from there next time:
    sums that another number of threads adds in another order would turn codes a little, and with them the name under
    which the features of all sessions are kept.
    """
    _count_words(model, sessions)
    sample = sessions[:: max(1, len(sessions) // count)][:count]
    file = root / "calibration" / f"{_key(model, sample)}.safetensors"
    buffers = {f"codec.{name}": tensor for name, tensor in model.memory.codec.named_buffers()}
    buffers |= {f"keys.{name}": tensor for name, tensor in model.memory.key_projection.named_buffers()}
    if file.is_file() and (kept := _read(file)):
        for name, tensor in buffers.items():
            tensor.copy_(kept[name])
        return
    began = time.perf_counter()
    read = model.encoder.encode(sample)
    states = torch.cat([one.states.transpose(0, 1) for one in read])  # (n, L, D)
    step = -(-len(states) // MOST_TOKENS)
    model.memory.calibrate(states[::step], torch.cat([one.keys for one in read]))
    logger.info("calibrated on %d sessions in %.0f s", len(sample), time.perf_counter() - began)
    with atomic_path(file) as partial:
        save_file({name: tensor.contiguous().cpu() for name, tensor in buffers.items()}, partial)


def _count_words(model: MLMFModel, sessions: Sequence[Session]) -> None:
    pieces = [session_pieces(session) for session in sessions]
    flat: list[list[int]] = model.tokenizer([piece for row in pieces for piece in row], add_special_tokens=False)[
        "input_ids"
    ]
    model.memory.scorer.of_turns.count(flat)
    read = iter(flat)
    model.memory.scorer.of_sessions.count([[i for _ in row for i in next(read)] for row in pieces])


def _key(model: MLMFModel, sample: Sequence[Session]) -> str:
    """A hash of all that the statistics depend on; the fingerprint holds those before, which the seed decides."""
    texts = [piece for session in sample for piece in session_pieces(session)]
    told = "\x00".join([model.fingerprint, str(model.lm.dtype), *texts])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _read(file: Path) -> dict[str, torch.Tensor] | None:
    """Nothing where the file is damaged: what it held is computed again."""
    try:
        return load_file(file)
    except SafetensorError:
        return None
