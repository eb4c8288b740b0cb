"""The retention loss, equation (9), the evidence loss, the entropy hinge (alg. 26), and the monitor of collapse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlmf.memory.find import FindScores
from mlmf.memory.gate import MASKED, entropy
from mlmf.memory.nodes import Node
from mlmf.memory.state import MemoryState

Evidence = tuple[tuple[int, int], ...] | None
"""Session and turn of what answers a question; empty where nothing does, ``None`` where it is not known."""


def retention_loss(new: MemoryState, old: MemoryState) -> Tensor:
    """``L_ret = sum ||E(M_s,t) - E(M_s,t-1)||^2`` over the event nodes alive at both times (eq. 9), as their mean.

    Embeddings have unit length, so the loss lies in [0, 4] and cannot be lowered by shrinking them.

    Returns:
        One value a conversation, ``(B,)``; 0 where no node survived.
    """
    drifts = []
    for row, (after, before) in enumerate(zip(new.nodes, old.nodes, strict=True)):
        position = {node.key: i for i, node in enumerate(after)}
        pairs = [(position[node.key], i) for i, node in enumerate(before) if node.key in position]
        if not pairs:
            drifts.append(new.embedding.new_zeros((), dtype=torch.float32))
            continue
        now, then = torch.tensor(pairs, device=new.embedding.device).T
        drifts.append((new.embedding[row, now] - old.embedding[row, then]).float().pow(2).sum(-1).mean())
    return torch.stack(drifts)


def evidence_loss(scores: FindScores, state: MemoryState, evidence: Sequence[Evidence]) -> Tensor:
    """``L_evi``: cross-entropy of the find scores over event nodes and nothing.

    The target is uniform over the evidence that can be found, and nothing where nothing answers.

    Args:
        scores: of the queries.
        state: one memory per query, or a single one for all.
        evidence: of each query.

    Returns:
        One value a query, ``(B,)``; 0 where the evidence is not known, is not among the nodes that can be found, or is
        that there is none while no score is kept for nothing.
    """
    logits = scores.nodes if scores.nothing is None else torch.cat([scores.nodes, scores.nothing[:, None]], 1)
    target = torch.zeros(logits.shape)
    for row, wanted in enumerate(evidence):
        nodes = state.nodes[row if state.batch_size > 1 else 0]
        if wanted == () and scores.nothing is not None:
            target[row, -1] = 1
        for i in places(wanted, nodes):
            target[row, i] = 1
    target = target.to(logits.device).masked_fill(logits == -torch.inf, 0)
    # of -inf there is no gradient; what cannot be found has no share of the target either
    surprise = -logits.clamp_min(MASKED).log_softmax(-1)
    return (surprise * target).sum(-1) / target.sum(-1).clamp_min(1)


def places(evidence: Evidence, nodes: Sequence[Node]) -> list[int]:
    """Positions of the evidence among event nodes."""
    return [i for i, node in enumerate(nodes) if node.key in evidence] if evidence else []


def entropy_hinge(gamma: Tensor, epsilon: float, mask: Tensor) -> Tensor:
    """``max(0, H(gamma) - epsilon)`` in nats, mean over the query tokens of ``mask`` (alg. 26).

    Args:
        gamma: ``(B, T, 3)``.
        epsilon: bound in nats.
        mask: query tokens that count, ``(B, T)``.
    """
    excess = (entropy(gamma) - epsilon).clamp_min(0)
    return (excess * mask).sum() / mask.sum().clamp_min(1)


def embedding_spread(state: MemoryState) -> float:
    """Collapse monitor: mean over dimensions of the standard deviation of node embeddings, times ``sqrt(K)``.

    About 1 for embeddings spread over the sphere, 0 where the retention loss has made them all alike.
    """
    rows = [state.embedding[i, : len(nodes)].detach().float() for i, nodes in enumerate(state.nodes)]
    rows = [row for row in rows if row.shape[0] > 1]
    if not rows:
        return 0.0
    spread = torch.stack([row.std(0).mean() * row.shape[-1] ** 0.5 for row in rows])
    return float(spread.mean())
