"""Finding: which event nodes a query is about. Late interaction on the wrapped model's own token states.

A node's score is the weighted sum over query tokens of the best-matching token of the node, plus rare tokens shared to
the letter. What is said around a turn, in the turns beside it and by shared words in its whole session, lifts it in the
same way; so do a speaker, a month or a year that the query names. What stands beside a hit, or mentions what it mentions,
is lifted by it. A turn is lowered by newer ones like it that answer as well, and all compete with having found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlmf.memory import cues
from mlmf.memory.bank import FindBank, SharedWords
from mlmf.memory.keys import QueryKeys
from mlmf.memory.layout import Layout
from mlmf.memory.rarity import PRIOR_SESSIONS, PRIOR_TURNS, Rarity
from mlmf.memory.state import MemoryState
from mlmf.memory.versions import outdated

AROUND = 3
"""Turns on either side that count as what is said around a turn. Not the session: it lifts all of its turns alike, which
is as good in sessions of ten turns and finds less in longer ones."""
SHORTLIST = 1024
"""Nodes of a shortlist, at least."""
SHORTLIST_FROM = 4096
"""Nodes of a conversation from which only a shortlist is scored."""


@dataclass(frozen=True)
class FindScores:
    """How well each event node answers each query, and how well nothing does.

    ``nodes`` is ``(B, N)``, ``-inf`` for what cannot be found; ``nothing`` is ``(B,)``, or ``None`` where it is off.
    """

    nodes: Tensor
    nothing: Tensor | None


class NodeScorer(nn.Module):
    """Relevance of every event node to a query; the weights of its parts are learned, but for what outdated turns lose."""

    versions: Tensor | None

    def __init__(self, vocab: int = 0, versions: bool = True, nothing: bool = True) -> None:
        """Start from values chosen on 16 of LOCCO's training users; the form was first explored on its test users.

        Cues and neighbours start from not at all.

        Args:
            vocab: ids of tokens whose rarity can be known beforehand.
            versions: lower outdated turns.
            nothing: score having found nothing.
        """
        super().__init__()
        self.of_turns, self.of_sessions = Rarity(vocab, PRIOR_TURNS), Rarity(vocab, PRIOR_SESSIONS)
        self.late = nn.Parameter(torch.tensor(1.0))
        self.lexical = nn.Parameter(torch.tensor(0.1))
        self.context = nn.Parameter(torch.tensor(2.0))
        self.session_lexical = nn.Parameter(torch.tensor(0.3))
        self.neighbourhood = nn.Parameter(torch.tensor(3.0))
        self.speaker = nn.Parameter(torch.tensor(0.0))
        self.month = nn.Parameter(torch.tensor(0.0))
        self.before = nn.Parameter(torch.tensor(0.0))
        self.after = nn.Parameter(torch.tensor(0.0))
        self.ties = nn.Parameter(torch.tensor(0.0))
        # not learned: it lowers every other turn while the best one is right, so that learning would raise it without end
        self.register_buffer("versions", torch.tensor(1.0) if versions else None)
        self.doubt = nn.Parameter(torch.tensor(0.0)) if nothing else None
        self.doubt_per_token = nn.Parameter(torch.tensor(2.2)) if nothing else None

    def forward(self, query: QueryKeys, state: MemoryState) -> FindScores:
        """Scores of all nodes and of nothing, in float32 whatever the model's dtype.

        A state of one conversation answers any number of queries. Cannot be found: empty nodes, superseded ones, and those
        that stand for a session. Of more than :data:`SHORTLIST_FROM` nodes only those of the sessions that look best by
        shared words and embeddings are scored, at least :data:`SHORTLIST` of them, and the others cannot be found.
        """
        with torch.autocast(query.keys.device.type, enabled=False):
            bank = FindBank.of(state)
            words = SharedWords.of(query, bank, self.of_turns, self.of_sessions)
            score = self._shortlisted if bank.size > SHORTLIST_FROM else self._score
            nothing = None
            if self.doubt is not None and self.doubt_per_token is not None:
                # a node's score is a sum over the query's tokens, so what it must exceed grows with them
                nothing = self.doubt + self.doubt_per_token * query.weights.sum(-1)
            return FindScores(score(query, bank, words), nothing)

    def _score(self, query: QueryKeys, bank: FindBank, words: SharedWords) -> Tensor:
        """Scores ``(B, N)``."""
        score = self._relevance(query, bank, words)
        score = self._with_neighbours(score, bank.layout).masked_fill(~bank.layout.findable, -torch.inf)
        if self.versions is not None:
            # no gradient to what is alike: older turns made like a newer right one would be lowered for free
            embedding = bank.embedding.detach().float()
            score = score - self.versions * outdated(score, embedding, bank.layout.newest_first)
        return score

    def _relevance(self, query: QueryKeys, bank: FindBank, words: SharedWords) -> Tensor:
        """Scores of nodes, each by itself and what is said around it."""
        b, n, layout = query.keys.shape[0], bank.size, bank.layout
        keys = query.keys.float() * query.weights[..., None]
        match = keys @ bank.float_keys().mT  # (B, T, M)
        # column 0 gathers the empty slots, whose owner is -1
        owner = (bank.owner + 1)[:, None].expand_as(match)
        best = match.new_zeros(b, match.shape[1], n + 1).scatter_reduce(2, owner, match, "amax")[..., 1:]
        around = self.late * best_around(best, layout).sum(1)
        around = around + lifting(self.session_lexical) * words.sessions.gather(1, layout.session.expand(b, n))
        score = self.late * best.sum(1) + lifting(self.lexical) * words.nodes + self.context * around
        score = score + self.neighbourhood * self._nearness(keys, bank) + bank.salience.float()
        score = score + lifting(self.speaker) * cues.by_whom(query.texts, layout)
        return score + lifting(self.month) * cues.when(query.texts, layout)

    def _with_neighbours(self, score: Tensor, layout: Layout) -> Tensor:
        """One step along the graph: part of the difference to the turns beside, and to the best turn tied to each."""
        gains = [
            lifting(share) * (score.gather(1, place.clamp_min(0).expand_as(score)) - score) * (place >= 0)
            for share, place in ((self.before, layout.before), (self.after, layout.after))
        ]
        conversation, here, there = layout.ties
        if layout.session.shape[0] == 1:
            best = score.scatter_reduce(1, here.expand(len(score), -1), score[:, there], "amax")
        else:
            tied, flat = score[conversation, there], conversation * score.shape[1] + here
            best = score.flatten().scatter_reduce(0, flat, tied, "amax").view_as(score)
        return score + sum(gains) + lifting(self.ties) * (best - score)

    def _shortlisted(self, query: QueryKeys, bank: FindBank, words: SharedWords) -> Tensor:
        """:meth:`_score` of the most promising sessions of each query, ``-inf`` elsewhere."""
        rows = []
        for row in range(query.keys.shape[0]):
            one, source = query.select(row), row if bank.salience.shape[0] > 1 else 0
            whole = bank.row(source)
            keys = one.keys.float() * one.weights[..., None]
            promise = lifting(self.lexical) * words.nodes[row] + self.neighbourhood * self._nearness(keys, whole)[0]
            lift = self.context * lifting(self.session_lexical) * words.sessions[row]
            kept = shortlist(promise.detach(), lift.detach(), whole.layout.session[0], SHORTLIST)
            scores = self._score(one, whole.take(kept), words.take(row, kept))
            rows.append(scores.new_full((bank.size,), -torch.inf).index_copy(0, kept, scores[0]))
        return torch.stack(rows)

    @staticmethod
    def _nearness(keys: Tensor, bank: FindBank) -> Tensor:
        """Cosine of node embeddings and the pooled query, ``(B, N)``."""
        return (bank.embedding.float() @ F.normalize(keys.sum(1), dim=-1)[..., None]).squeeze(-1)


def lifting(weight: Tensor) -> Tensor:
    """``max(0, w)``: what speaks for a turn never counts against it.

    Small memories of sessions that differ in topic make do without some parts and would turn them against turns that only
    larger memories need them for. The gradient does not end at 0, so that a weight can come back.
    """
    return weight + (weight.clamp_min(0) - weight).detach()


def best_around(best: Tensor, layout: Layout) -> Tensor:
    """For each token of a query the best match within :data:`AROUND` turns of a node in its session, itself included.

    Args:
        best: the best match of each node, at least 0, ``(B, T, N)``.
        layout: of these nodes.

    Returns:
        ``(B, T, N)``; a date line has no turns around it.
    """
    around = best
    for beside in (layout.before, layout.after):
        place, there = beside.clamp_min(0)[:, None].expand_as(best), (beside >= 0)[:, None]
        reached = best
        for _ in range(AROUND):
            reached = reached.gather(2, place) * there
            around = torch.maximum(around, reached)
    return around


def shortlist(promise: Tensor, lift: Tensor, session: Tensor, count: int) -> Tensor:
    """Places of whole sessions, the most promising first, until there are ``count``; in ascending order.

    Whole sessions, so that a node of the shortlist has the score it would have among all.

    Args:
        promise: of each place, ``(N,)``.
        lift: what each session adds to it, ``(S + 1,)``.
        session: number of each place's session, ``(N,)``; 0 where empty.
        count: places, at least, where there are as many.
    """
    best = torch.full_like(lift, -torch.inf).scatter_reduce(0, session, promise, "amax") + lift
    best[0] = -torch.inf
    order = best.argsort(descending=True, stable=True)
    sizes = torch.bincount(session, minlength=len(lift))[order]
    chosen = order[sizes.cumsum(0) - sizes < count]
    return torch.isin(session, chosen[chosen > 0]).nonzero().squeeze(-1)
