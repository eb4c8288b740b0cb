"""Working memory, equation (4): ``M_w = Pi_Cw(phi_w(S_t))``, the codes of the last tokens of the latest session."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmf.memory.state import pad_to


def write_working(codes: Tensor, k: int, c_w: int) -> tuple[Tensor, Tensor]:
    """Working memory after one session.

    Args:
        codes: the session's codes, ``(S, R)``.
        k: window: how many of the last tokens are looked at.
        c_w: capacity in slots.

    Returns:
        The bank ``(C_w, R)``, oldest token first, and its mask ``(C_w,)``. Whatever stood there before is gone.
    """
    kept = codes[-min(k, c_w) :]
    mask = torch.arange(c_w, device=codes.device) < kept.shape[0]
    return pad_to(kept, 0, c_w), mask
