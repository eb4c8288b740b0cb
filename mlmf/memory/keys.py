"""Keys: what finds the tokens of the event nodes, and what a query brings to the search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class QueryKeys:
    """What a query brings to the search.

    Keys ``(B, T, K)``, token ids ``(B, T)``, a mask ``(B, T)``, how much each token counts, ``(B, T)``, and the text of
    each query, in which names and months are looked for.
    """

    keys: Tensor
    tokens: Tensor
    mask: Tensor
    weights: Tensor
    texts: tuple[str, ...]

    def select(self, row: int) -> QueryKeys:
        """One of the queries, without its padding."""
        kept = self.mask[row]
        keys, tokens, mask, weights = (
            part[row][kept][None] for part in (self.keys, self.tokens, self.mask, self.weights)
        )
        return QueryKeys(keys, tokens, mask, weights, (self.texts[row],))


class KeyProjection(nn.Module):
    """States of the key layer to keys of unit length: standardised per dimension, then projected.

    Without standardising, a few dimensions of huge variance decide every cosine. The projection starts orthogonal and is
    learned; turns and queries share it. What a token of a query counts is learned too, from 1 for every token.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, width: int, key_dim: int, seed: int) -> None:
        """Build for states of ``width``; statistics are those of a unit normal until :meth:`calibrate`."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        basis = torch.linalg.qr(torch.randn(width, min(key_dim, width), generator=generator))[0]
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("std", torch.ones(width))
        self.projection = nn.Parameter(basis.contiguous())
        self.token = nn.Linear(width, 1)
        nn.init.zeros_(self.token.weight)
        nn.init.zeros_(self.token.bias)

    @torch.no_grad()
    def calibrate(self, states: Tensor) -> None:
        """Take mean and deviation from sample states of the key layer, ``(n, D)``."""
        self.mean.copy_(states.float().mean(0))
        self.std.copy_(states.float().std(0).clamp_min(1e-4))

    def forward(self, states: Tensor) -> Tensor:
        """``(..., D)`` to ``(..., K)``."""
        with torch.autocast(states.device.type, enabled=False):
            # what has to be exact is done by now: the product takes a third of the time in the dtype of the states
            keys = self._standard(states).to(states.dtype) @ self.projection.to(states.dtype)
            return F.normalize(keys.float(), dim=-1).to(states.dtype)

    def query(self, states: Tensor, tokens: Tensor, mask: Tensor, texts: Sequence[str]) -> QueryKeys:
        """Queries from their states ``(B, T, D)``, token ids and mask ``(B, T)``, and what they say."""
        with torch.autocast(states.device.type, enabled=False):
            logits = F.linear(self._standard(states), self.token.weight.float(), self.token.bias.float())
            # softplus(0) is ln 2: a token counts exactly 1 until something is learned
            weights = F.softplus(logits.squeeze(-1)) / math.log(2)
        return QueryKeys(self(states), tokens, mask, weights * mask, tuple(texts))

    def _standard(self, states: Tensor) -> Tensor:
        return (states.float() - self.mean.float()) / self.std.float()
