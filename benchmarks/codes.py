"""How much of what fusion reads of a token's states their codes keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from mlmf.memory.fusion import Fusion
from mlmf.memory.rounding import CODE_STEPS, from_stored, to_stored
from mlmf.model import MLMFModel
from mlmf.training.calibration import calibrate
from mlmf.types import Session


@torch.no_grad()
def read_variance_kept(
    model: MLMFModel, calibrated_on: Sequence[Session], sessions: Sequence[Session], cache: Path
) -> dict[str, float]:
    """Share of the variance of keys and values that survives coding, mean over them and the fusion layers.

    Args:
        model: a fresh one; it is calibrated here.
        calibrated_on: sessions the codes are made for.
        sessions: others, which they are tried on.
        cache: for the calibration.

    Returns:
        ``read_variance_kept`` of codes in the model's dtype and ``read_variance_kept_int8`` of rounded ones.
    """
    calibrate(model, calibrated_on, cache)
    states = torch.cat([one.states for one in model.encoder.encode(sessions)], 1)  # (L, S, D)
    codes = model.memory.codec.encode(states)
    rounded = from_stored(to_stored(codes, CODE_STEPS, torch.int8), CODE_STEPS, codes.dtype)
    kept = {}
    for name, one in (("read_variance_kept", codes), ("read_variance_kept_int8", rounded)):
        decoded = model.memory.codec.decode(one)
        lost = []
        for layer, fusion in enumerate(cast("Sequence[Fusion]", model.memory.fusions)):
            for exact, again in zip(fusion.reads(states[layer]), fusion.reads(decoded[layer]), strict=True):
                spread = exact.float() - exact.float().mean(0)
                lost.append((exact.float() - again.float()).square().sum() / spread.square().sum())
        kept[name] = 1 - float(torch.stack(lost).mean())
    return kept
