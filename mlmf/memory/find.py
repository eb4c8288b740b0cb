"""Finding: which event nodes a query is about. Late interaction on the wrapped model's own token states.

A node's score is the weighted sum over query tokens of the best-matching token of the node, plus rare tokens shared to
the letter; a session's score is the same over all its tokens, and it lifts every turn that is part of the session. A turn
is lowered by newer ones that answer as well, and all of them compete with having found nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlmf.memory.rounding import KEY_STEPS, from_stored
from mlmf.memory.state import MemoryState
from mlmf.memory.versions import outdated


@dataclass(frozen=True)
class QueryKeys:
    """What a query brings to the search.

    Keys ``(B, T, K)``, token ids ``(B, T)``, a mask ``(B, T)``, and how much each token counts, ``(B, T)``.
    """

    keys: Tensor
    tokens: Tensor
    mask: Tensor
    weights: Tensor


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
            return F.normalize(self._standard(states) @ self.projection.float(), dim=-1).to(states.dtype)

    def query(self, states: Tensor, tokens: Tensor, mask: Tensor) -> QueryKeys:
        """A query from its states ``(B, T, D)``, token ids and mask ``(B, T)``."""
        with torch.autocast(states.device.type, enabled=False):
            logits = F.linear(self._standard(states), self.token.weight.float(), self.token.bias.float())
            # softplus(0) is ln 2: a token counts exactly 1 until something is learned
            weights = F.softplus(logits.squeeze(-1)) / math.log(2)
        return QueryKeys(self(states), tokens, mask, weights * mask)

    def _standard(self, states: Tensor) -> Tensor:
        return (states.float() - self.mean.float()) / self.std.float()


@dataclass(frozen=True)
class FindScores:
    """How well each event node answers each query, and how well nothing does.

    ``nodes`` is ``(B, N)``, ``-inf`` for what cannot be found; ``nothing`` is ``(B,)``, or ``None`` where it is off.
    """

    nodes: Tensor
    nothing: Tensor | None


class NodeScorer(nn.Module):
    """Relevance of every event node to a query; the weights of its parts are learned."""

    def __init__(self, versions: bool = True, nothing: bool = True) -> None:
        """Start from values chosen on 16 of LOCCO's training users; the form was first explored on its test users.

        Args:
            versions: lower outdated turns.
            nothing: score having found nothing.
        """
        super().__init__()
        self.lexical = nn.Parameter(torch.tensor(0.1))
        self.session = nn.Parameter(torch.tensor(2.0))
        self.session_lexical = nn.Parameter(torch.tensor(0.3))
        self.neighbourhood = nn.Parameter(torch.tensor(3.0))
        self.versions = nn.Parameter(torch.tensor(1.0)) if versions else None
        self.doubt = nn.Parameter(torch.tensor(0.0)) if nothing else None
        self.doubt_per_token = nn.Parameter(torch.tensor(2.2)) if nothing else None

    def forward(self, query: QueryKeys, state: MemoryState) -> FindScores:
        """Scores of all nodes and of nothing, in float32 whatever the model's dtype.

        A state of one conversation answers any number of queries. Cannot be found: empty nodes, superseded ones, and those
        that stand for a session.
        """
        with torch.autocast(query.keys.device.type, enabled=False):
            scores = self._relevance(query, state)
            if self.versions is not None:
                scores = scores - self.versions * outdated(scores, state.nodes)
            nothing = None
            if self.doubt is not None and self.doubt_per_token is not None:
                # a node's score is a sum over the query's tokens, so what it must exceed grows with them
                nothing = self.doubt + self.doubt_per_token * query.weights.sum(-1)
            return FindScores(scores, nothing)

    def _relevance(self, query: QueryKeys, state: MemoryState) -> Tensor:
        """Scores ``(B, N)`` of nodes, each by itself."""
        b, n = query.keys.shape[0], state.salience.shape[1]
        sessions, n_sessions, findable = _layout(state, n)
        n_nodes, own_sessions = _counts(state)
        keys = query.keys.float() * query.weights[..., None]
        match = keys @ from_stored(state.keys, KEY_STEPS, keys.dtype).mT  # (B, T, M)
        same = (query.tokens[:, :, None] == state.tokens[:, None]) & query.mask[..., None]
        sessions = sessions.expand(b, n)
        # column 0 gathers the empty slots, whose owner is -1
        owner = (state.owner + 1)[:, None].expand_as(match)
        best = match.new_zeros(b, match.shape[1], n + 1).scatter_reduce(2, owner, match, "amax")[..., 1:]
        shared = match.new_zeros(b, match.shape[1], n + 1).scatter_reduce(2, owner, same.float(), "amax")[..., 1:]
        group = sessions[:, None].expand_as(best)
        best_session = best.new_zeros(b, best.shape[1], n_sessions + 1).scatter_reduce(2, group, best, "amax")
        shared_session = best.new_zeros(b, best.shape[1], n_sessions + 1).scatter_reduce(2, group, shared, "amax")
        by_session = best_session.sum(1) + self.session_lexical * _rarity(shared_session, own_sessions)
        pooled = F.normalize(keys.sum(1), dim=-1)
        score = best.sum(1) + self.lexical * _rarity(shared, n_nodes)
        score = score + self.session * by_session.gather(1, sessions)
        score = score + self.neighbourhood * (state.embedding.float() @ pooled[..., None]).squeeze(-1)
        score = score + state.salience.float()
        return score.masked_fill(~findable, -torch.inf)


def _rarity(shared: Tensor, count: Tensor) -> Tensor:
    """Shared tokens weighted by inverse document frequency: ``(B, T, N)`` of 0 and 1 to ``(B, N)``."""
    idf = ((count[:, None] + 1) / (shared.sum(-1) + 0.5)).log().clamp_min(0)
    return (shared * idf[..., None]).sum(1)


def _counts(state: MemoryState) -> tuple[Tensor, Tensor]:
    nodes = [len(row) for row in state.nodes]
    sessions = [len({node.session for node in row}) for row in state.nodes]
    return torch.tensor(nodes, device=state.owner.device), torch.tensor(sessions, device=state.owner.device)


def _layout(state: MemoryState, n: int) -> tuple[Tensor, int, Tensor]:
    """Per node: its session as 1..n_sessions (0 where empty), and whether it can be found."""
    device = state.owner.device
    sessions, findable = [], []
    most = 0
    for row in state.nodes:
        number = {s: i + 1 for i, s in enumerate(dict.fromkeys(node.session for node in row))}
        most = max(most, len(number))
        padding = n - len(row)
        sessions.append([number[node.session] for node in row] + [0] * padding)
        findable.append([not (node.is_session or node.superseded) for node in row] + [False] * padding)
    return torch.tensor(sessions, device=device), most, torch.tensor(findable, device=device, dtype=torch.bool)
