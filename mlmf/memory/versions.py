"""Outdated or current: an old turn loses to a newer one that is like it and answers the same query as well."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.gate import MASKED

ALIKE = 0.5
"""Cosine of two embeddings from which one turn may outdate another; at 1 it does so fully. Of two turns that answer a
question and are about different things, both hold."""
RIVALS = 64
"""The best nodes of a query, which alone outdate others: what is further down answers nothing as well."""


def outdated(scores: Tensor, embedding: Tensor, newest_first: Tensor) -> Tensor:
    """How well a newer turn like it answers the same query: ``o_i = max_j a_ij exp(s_j - max_k s_k)``.

    ``j`` is newer than ``i`` and among the :data:`RIVALS` best, ``a_ij = max(0, (cos(e_i, e_j) - ALIKE) / (1 - ALIKE))``. What counts is relevance to the query at hand, however long ago
    the turns were said: a penalty on age itself would bury old facts under recent chatter.

    Args:
        scores: find scores ``s``, ``(B, N)``; ``-inf`` marks what cannot be found, which outdates nothing.
        embedding: ``e``, unit length, ``(B, N, K)``, or ``(1, N, K)`` for a single conversation that all queries are about.
        newest_first: places by age, ``(B, N)`` or ``(1, N)``.

    Returns:
        ``(B, N)`` in [0, 1]; 1 where the best of all is newer and says the like, 0 for the newest turn.
    """
    b, n = scores.shape
    if n == 0:
        return scores
    best = F.pad(scores, (0, 1), value=MASKED).amax(-1, keepdim=True)
    rivals, place = scores.topk(min(RIVALS, n))
    age = newest_first.argsort(-1).expand(b, n)
    newer = age.gather(1, place)[:, None] < age[..., None]  # (B, N, R)
    theirs = embedding.expand(b, -1, -1).gather(1, place[..., None].expand(-1, -1, embedding.shape[-1]))
    alike = ((embedding @ theirs.mT - ALIKE) / (1 - ALIKE)).clamp_min(0)
    return ((rivals - best).exp()[:, None] * alike * newer).amax(-1)
