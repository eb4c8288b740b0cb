"""Outdated or current: an old turn loses to a newer one that answers the same query as well."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.gate import MASKED
from mlmf.memory.nodes import Node


def outdated(scores: Tensor, nodes: Sequence[Sequence[Node]]) -> Tensor:
    """How well the best newer turn answers the same query: ``o_i = max_{j newer than i} exp(s_j - max_k s_k)``.

    What counts is relevance to the query at hand, however long ago the turns were said: a penalty on age itself would
    bury old facts under recent chatter.

    Args:
        scores: find scores ``s``, ``(B, N)``; ``-inf`` marks what cannot be found, which outdates nothing.
        nodes: of each query's conversation, or of the single one that all queries are about.

    Returns:
        ``(B, N)`` in [0, 1]; 1 where a newer turn is the best of all, 0 for the newest turn.
    """
    best = F.pad(scores, (0, 1), value=MASKED).amax(-1, keepdim=True)
    relative = (scores - best).exp()
    newest_first = _newest_first(nodes, scores.shape[1]).to(scores.device).expand_as(scores)
    so_far = relative.gather(1, newest_first).cummax(-1).values
    newer = F.pad(so_far, (1, 0))[:, :-1]
    return torch.zeros_like(newer).scatter(1, newest_first, newer)


def _newest_first(nodes: Sequence[Sequence[Node]], size: int) -> Tensor:
    """Positions in each row by session and turn, the latest first, after the padding, which outdates nothing."""
    rows = []
    for row in nodes:
        # sessions may be written out of order: what was said last is newest, not what was read last
        order = sorted(range(len(row)), key=lambda i: row[i].key, reverse=True)
        rows.append([*range(len(row), size), *order])
    return torch.tensor(rows, dtype=torch.long)
