"""Working memory, equation (4): ``M_w = Pi_Cw(phi_w(S_t))``, the states of the last tokens of the latest session."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmf.memory.state import pad_to


def write_working(states: Tensor, k: int, c_w: int) -> tuple[Tensor, Tensor]:
    """Working memory after one session.

    Args:
        states: the session's states, ``(L, S, D)``.
        k: window: how many of the last tokens are looked at.
        c_w: capacity in slots.

    Returns:
        The bank ``(L, C_w, D)``, oldest token first, and its mask ``(C_w,)``. Whatever stood there before is gone.
    """
    kept = states[:, -min(k, c_w) :]
    mask = torch.arange(c_w, device=states.device) < kept.shape[1]
    return pad_to(kept, 1, c_w), mask
