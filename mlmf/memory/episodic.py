"""Episodic memory, equation (5): ``M_e = Pi_Ce(alpha * M_e + (1 - alpha) * psi(S_t))``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlmf.config.model import AlphaMode

SHORTEST, LONGEST = 1.0, 128.0
"""Time scales of the first and the last slot in sessions, where each slot has its own."""


class EpisodicMemory(nn.Module):
    """``C_e`` learned queries pool a session into slots, which are blended with what the slots held.

    The pooled vectors are averages of the session's codes, weighted by attention over its keys. Codes are linear in the
    wrapped model's states, so that a slot decodes to the same average of states, which the fusion layers can read.
    """

    def __init__(self, slots: int, key_dim: int, alpha: float, mode: AlphaMode) -> None:
        """Build the pool.

        Args:
            slots: capacity ``C_e``.
            key_dim: width of the keys.
            alpha: share of a slot that survives a write; where each slot learns its own, it is not used.
            mode: ``scalar`` is the paper's form: every session blends into every slot, so that the first of ``T``
                sessions keeps ``(1 - alpha) * alpha ** (T - 1)``. ``per_slot`` is the same with an alpha of each slot,
                ``exp(-1 / tau)`` with ``tau`` spaced evenly in its logarithm from 1 to 128 sessions at the start, and
                learned. ``routed`` blends only the slots a session is routed to.
        """
        super().__init__()
        self.queries = nn.Parameter(torch.randn(slots, key_dim) / key_dim**0.5)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.alpha, self.mode = alpha, mode
        if mode == "per_slot":
            tau = torch.logspace(0, 1, slots, base=LONGEST / SHORTEST) * SHORTEST
            self.alpha_logits = nn.Parameter(torch.logit(torch.exp(-1 / tau)))
        # an eighth of the slots a session: eight sessions fill an empty memory before any of them is blended
        self.writes = max(1, slots // 8)

    def alphas(self) -> Tensor:
        """The share of each slot that survives a write, ``(C_e,)``."""
        if self.mode == "per_slot":
            return self.alpha_logits.float().sigmoid()
        return torch.full((self.queries.shape[0],), self.alpha, device=self.queries.device)

    def pool(self, codes: Tensor, keys: Tensor) -> Tensor:
        """``psi``: ``(S, R)`` codes and ``(S, K)`` keys to one vector per slot, ``(C_e, R)``."""
        scale = 8.0 * self.log_temperature.exp()
        weights = (scale * self.queries @ keys.T.to(self.queries.dtype)).softmax(-1)  # (C_e, S)
        return weights.to(codes.dtype) @ codes

    def forward(self, old: Tensor, mask: Tensor, codes: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Blend one session into one conversation's slots.

        Args:
            old: slots so far, ``(C_e, R)``.
            mask: which of them were ever written, ``(C_e,)``.
            codes: the session's codes, ``(S, R)``.
            keys: the session's keys, ``(S, K)``.

        Returns:
            The new slots and their mask.
        """
        new = self.pool(codes, keys)
        alpha = self.alphas()
        written = torch.ones_like(mask)
        if self.mode == "routed":
            written = self.route(old, mask, new)
            # a slot written for the first time has nothing to keep
            alpha = torch.where(mask, alpha, 0.0)
        # in float32: a slow slot takes in less of a session than the spacing of bfloat16 numbers
        share = alpha.float()[:, None]
        blend = (share * old.float() + (1 - share) * new.float()).to(old.dtype)
        return torch.where(written[:, None], blend, old), mask | written

    def route(self, old: Tensor, mask: Tensor, new: Tensor) -> Tensor:
        """Which slots a session writes to, ``(C_e,)`` bool: empty ones first, then those that resemble it most."""
        with torch.no_grad():
            resemblance = F.cosine_similarity(old.float(), new.float(), dim=-1)  # (C_e,)
            # slots in order, so that two empty ones are never tied
            order = torch.arange(mask.shape[0], device=mask.device)
            rank = torch.where(mask, resemblance, 2.0 + (mask.shape[0] - order).float())
            chosen = rank.topk(min(self.writes, mask.shape[0])).indices
            return torch.zeros_like(mask).scatter(0, chosen, True)
