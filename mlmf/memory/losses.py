"""The retention loss, equation (9), the entropy hinge (alg. 26), and the monitor that tells learning from collapse."""

from __future__ import annotations

import torch
from torch import Tensor

from mlmf.memory.gate import entropy
from mlmf.memory.state import MemoryState


def retention_loss(new: MemoryState, old: MemoryState) -> Tensor:
    """``L_ret = sum ||E(M_s,t) - E(M_s,t-1)||^2`` over the event nodes alive at both times (eq. 9), mean over nodes.

    Embeddings have unit length, so the loss lies in [0, 4] and cannot be lowered by shrinking them.
    """
    drifts = []
    for row, (after, before) in enumerate(zip(new.nodes, old.nodes, strict=True)):
        position = {(node.session, node.turn): i for i, node in enumerate(after)}
        pairs = [
            (position[node.session, node.turn], i)
            for i, node in enumerate(before)
            if (node.session, node.turn) in position
        ]
        if pairs:
            now, then = torch.tensor(pairs, device=new.embedding.device).T
            drifts.append((new.embedding[row, now] - old.embedding[row, then]).float().pow(2).sum(-1))
    if not drifts:
        return new.embedding.new_zeros((), dtype=torch.float32)
    return torch.cat(drifts).mean()


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
