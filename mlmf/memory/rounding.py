"""Slots of eight bits: how the codes and keys of a semantic bank are stored, and read again."""

from __future__ import annotations

import torch
from torch import Tensor

CODE_STEPS, KEY_STEPS = 32, 127
"""Steps to the unit. Codes have about unit variance, so that eight bits reach four deviations; keys have unit length."""


def to_stored(values: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Codes or keys as a bank of ``dtype`` stores them; int8 rounds to ``1 / steps``, clamps, and passes no gradient."""
    if dtype.is_floating_point:
        return values.to(dtype)
    return (values.detach().float() * steps).round().clamp(-127, 127).to(dtype)


def from_stored(stored: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """What :func:`to_stored` stored, in ``dtype``."""
    return stored.to(dtype) if stored.is_floating_point() else stored.to(dtype) / steps
