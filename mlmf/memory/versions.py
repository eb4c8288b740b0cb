"""Outdated or current: an old turn loses to a newer one that answers the same query as well."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.gate import MASKED


def outdated(scores: Tensor, newest_first: Tensor) -> Tensor:
    """How well the best newer turn answers the same query: ``o_i = max_{j newer than i} exp(s_j - max_k s_k)``.

    What counts is relevance to the query at hand, however long ago the turns were said: a penalty on age itself would
    bury old facts under recent chatter.

    Args:
        scores: find scores ``s``, ``(B, N)``; ``-inf`` marks what cannot be found, which outdates nothing.
        newest_first: places by age, ``(B, N)``, or ``(1, N)`` for a single conversation that all queries are about.

    Returns:
        ``(B, N)`` in [0, 1]; 1 where a newer turn is the best of all, 0 for the newest turn.
    """
    best = F.pad(scores, (0, 1), value=MASKED).amax(-1, keepdim=True)
    relative = (scores - best).exp()
    order = newest_first.expand_as(scores)
    so_far = relative.gather(1, order).cummax(-1).values
    newer = F.pad(so_far, (1, 0))[:, :-1]
    return torch.zeros_like(newer).scatter(1, order, newer)
