"""Semantic memory, equation (6): ``M_s = A(M_e)``, a bounded bank of event nodes over which messages are passed.

Algorithms 12-15: turns become event nodes, near-duplicates are resolved (``tau_s``), the capacity ``C_s`` is kept by a
learned salience that reads the episodic memory, and a few steps of message passing tell each node who and what is near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlmf.memory.graph import edges, entities
from mlmf.memory.state import Node
from mlmf.types import Session, format_date, format_line


@dataclass(frozen=True)
class SemanticRow:
    """The semantic bank of one conversation; shapes as in :class:`MemoryState`, without the batch."""

    values: Tensor
    keys: Tensor
    tokens: Tensor
    owner: Tensor
    pooled: Tensor
    nodes: tuple[Node, ...]


def session_nodes(session: Session) -> tuple[Node, ...]:
    """A node for the session and one for each of its turns, in the order of the session's pieces."""
    header = Node(session.index, -1, "", f"[{format_date(session.date)}]")
    turns = (
        Node(session.index, i, turn.id, format_line(turn, session.date), entities(turn.content))
        for i, turn in enumerate(session.turns)
    )
    return (header, *turns)


class SemanticMemory(nn.Module):
    """The aggregation ``A``: writes sessions into a row, prunes it, and embeds its nodes."""

    def __init__(self, width: int, key_dim: int, c_s: int, node_tokens: int, tau_s: float, steps: int = 2) -> None:
        """Build ``A``.

        Args:
            width: ``D``, width of the wrapped model.
            key_dim: ``K``.
            c_s: capacity in event nodes.
            node_tokens: token states kept per node.
            tau_s: cosine of pooled keys from which two turns count as near-duplicates.
            steps: rounds of message passing.
        """
        super().__init__()
        self.message = nn.Linear(key_dim, key_dim, bias=False)
        self.salience = nn.Linear(key_dim + width, 1, bias=False)
        # a node starts as itself and a third of what is near; recency alone decides what is pruned
        with torch.no_grad():
            nn.init.eye_(self.message.weight).mul_(0.3)
        nn.init.zeros_(self.salience.weight)
        self.c_s, self.node_tokens, self.tau_s, self.steps = c_s, node_tokens, tau_s, steps

    def append(
        self, row: SemanticRow, states: Tensor, keys: Tensor, tokens: Tensor, pieces: Tensor, nodes: Sequence[Node]
    ) -> SemanticRow:
        """Add a session's pieces as event nodes and resolve what they repeat.

        Args:
            row: the conversation so far.
            states: ``(L, S, D)``.
            keys: ``(S, K)``, unit length.
            tokens: ``(S,)``.
            pieces: index into ``nodes`` for each token, ascending, ``(S,)``.
            nodes: the new nodes.
        """
        counts = torch.bincount(pieces, minlength=len(nodes))
        starts = counts.cumsum(0) - counts
        kept = torch.arange(len(pieces), device=pieces.device) - starts[pieces] < self.node_tokens
        pieces, keys, tokens, states = pieces[kept], keys[kept], tokens[kept], states[:, kept]
        sums = keys.new_zeros(len(nodes), keys.shape[-1]).index_add(0, pieces, keys)
        pooled = F.normalize(sums, dim=-1)
        return SemanticRow(
            values=torch.cat([row.values, states], 1),
            keys=torch.cat([row.keys, keys]),
            tokens=torch.cat([row.tokens, tokens]),
            owner=torch.cat([row.owner, pieces + len(row.nodes)]),
            pooled=torch.cat([row.pooled, pooled]),
            nodes=self.resolve(row, pooled, nodes),
        )

    def resolve(self, row: SemanticRow, pooled: Tensor, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """``Resolve(tau_s)``: an old turn that a new one repeats is superseded; it stays as history, no longer found."""
        if not row.nodes:
            return tuple(nodes)
        is_turn = torch.tensor([not node.is_session for node in nodes], device=pooled.device)
        alike = ((row.pooled @ pooled.T).float() > self.tau_s) & is_turn
        repeated = alike.any(-1).tolist()
        old = (
            replace(node, superseded=True) if again and not node.is_session else node
            for node, again in zip(row.nodes, repeated, strict=True)
        )
        return (*old, *nodes)

    def score_salience(self, pooled: Tensor, episodic: Tensor) -> Tensor:
        """Learned salience of nodes ``(N, K)`` given the episodic summary ``(D,)``, ``(N,)``."""
        summary = F.rms_norm(episodic, episodic.shape).expand(pooled.shape[0], -1)
        return self.salience(torch.cat([pooled, summary], -1)).squeeze(-1)

    def prune(self, row: SemanticRow, salience: Tensor) -> tuple[SemanticRow, Tensor]:
        """``Pi_Cs``: keep the ``C_s`` most salient nodes, the newer of two equals; order and provenance stay."""
        if len(row.nodes) <= self.c_s:
            return row, salience
        weight = salience.detach().tolist()
        order = sorted(range(len(row.nodes)), key=lambda i: (-weight[i], -i))
        kept = torch.tensor(sorted(order[: self.c_s]), device=row.owner.device)
        place = torch.full((len(row.nodes),), -1, device=row.owner.device)
        place[kept] = torch.arange(len(kept), device=row.owner.device)
        slots = (place[row.owner] >= 0).nonzero().squeeze(-1)
        pruned = SemanticRow(
            values=row.values[:, slots],
            keys=row.keys[slots],
            tokens=row.tokens[slots],
            owner=place[row.owner[slots]],
            pooled=row.pooled[kept],
            nodes=tuple(row.nodes[i] for i in kept.tolist()),
        )
        return pruned, salience[kept]

    def embed(self, row: SemanticRow) -> Tensor:
        """``E``: rounds of mean-neighbour messages over the graph, ``(N, K)``, unit length."""
        pairs = [(i, j) for i, j, _ in edges(row.nodes)]
        if not pairs:
            return row.pooled
        one, other = torch.tensor(pairs, device=row.pooled.device).T
        source, target = torch.cat([one, other]), torch.cat([other, one])
        degree = torch.bincount(target, minlength=len(row.nodes)).clamp_min(1)[:, None].to(row.pooled.dtype)
        embedding = row.pooled
        for _ in range(self.steps):
            received = torch.zeros_like(embedding).index_add(0, target, embedding[source]) / degree
            embedding = F.normalize(embedding + self.message(received), dim=-1)
        return embedding
