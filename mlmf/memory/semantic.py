"""Semantic memory, equation (6): ``M_s = A(M_e)``, a bounded bank of event nodes over which messages are passed.

Algorithms 12-15: turns become event nodes, near-duplicates are resolved into chains of versions (``tau_s``), the capacity
``C_s`` is kept by the length of turns and a learned salience that reads the episodic memory, and a few steps of message passing tell each node
who and what is near.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlmf.memory.entities import EntityExtractor, extract_by_rules
from mlmf.memory.graph import degrees, edges
from mlmf.memory.nodes import Node
from mlmf.memory.rounding import CODE_STEPS, KEY_STEPS, to_stored
from mlmf.memory.state import MemoryState
from mlmf.types import Session, format_date, format_line

LENGTH = 0.5
"""What the logarithm of a turn's tokens counts beside its salience where the capacity is kept: long turns tell more, in
dialogues of any kind, and salience knows those it was learned on."""


@dataclass(frozen=True)
class SemanticRow:
    """The semantic bank of one conversation; shapes as in :class:`MemoryState`, without the batch."""

    values: Tensor
    keys: Tensor
    tokens: Tensor
    owner: Tensor
    pooled: Tensor
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, state: MemoryState) -> SemanticRow:
        """The bank of a state of one conversation without padding."""
        return cls(state.values[0], state.keys[0], state.tokens[0], state.owner[0], state.pooled[0], state.nodes[0])

    def take(self, kept: Sequence[int]) -> SemanticRow:
        """The nodes at some positions, given in ascending order, with what they own."""
        device = self.owner.device
        positions = torch.tensor(list(kept), dtype=torch.long, device=device)
        place = torch.full((len(self.nodes),), -1, device=device)
        place[positions] = torch.arange(len(positions), device=device)
        slots = (place[self.owner] >= 0).nonzero().squeeze(-1)
        return SemanticRow(
            values=self.values[slots],
            keys=self.keys[slots],
            tokens=self.tokens[slots],
            owner=place[self.owner[slots]],
            pooled=self.pooled[positions],
            nodes=tuple(self.nodes[i] for i in kept),
        )


def session_nodes(session: Session, extract: EntityExtractor = extract_by_rules) -> tuple[Node, ...]:
    """A node for the session and one for each of its turns, in the order of the session's pieces."""
    date = None if session.date is None else session.date.isoformat()
    speakers = tuple(dict.fromkeys(turn.speaker for turn in session.turns))
    header = Node(session.index, -1, "", f"[{format_date(session.date)}]", date=date)
    turns = (
        Node(
            session.index, i, turn.id, format_line(turn, session.date), extract(turn.content, speakers),
            speaker=turn.speaker, date=date,
        )
        for i, turn in enumerate(session.turns)
    )  # fmt: skip
    return (header, *turns)


class SemanticMemory(nn.Module):
    """The aggregation ``A``: writes sessions into a row, prunes it, and embeds its nodes."""

    def __init__(
        self, code_width: int, key_dim: int, c_s: int, c_m: int, node_tokens: int, tau_s: float, steps: int = 2
    ) -> None:
        """Build ``A``.

        Args:
            code_width: ``R``.
            key_dim: ``K``.
            c_s: capacity in event nodes.
            c_m: capacity in token slots.
            node_tokens: token slots kept per node.
            tau_s: cosine of pooled keys from which two turns count as near-duplicates.
            steps: rounds of message passing.
        """
        super().__init__()
        self.message = nn.Linear(key_dim, key_dim, bias=False)
        self.salience = nn.Linear(key_dim + code_width, 1, bias=False)
        # a node starts as itself and a third of what is near; length, degree and recency decide what is pruned
        with torch.no_grad():
            nn.init.eye_(self.message.weight).mul_(0.3)
        nn.init.zeros_(self.salience.weight)
        self.c_s, self.c_m, self.node_tokens, self.tau_s, self.steps = c_s, c_m, node_tokens, tau_s, steps

    def append(
        self, row: SemanticRow, codes: Tensor, keys: Tensor, tokens: Tensor, pieces: Tensor, nodes: Sequence[Node]
    ) -> SemanticRow:
        """Add a session's pieces as event nodes and resolve what they repeat.

        Args:
            row: the conversation so far.
            codes: ``(S, R)``.
            keys: ``(S, K)``, unit length.
            tokens: ``(S,)``.
            pieces: index into ``nodes`` for each token, ascending, ``(S,)``.
            nodes: the new nodes.
        """
        counts = torch.bincount(pieces, minlength=len(nodes))
        if int(counts.max()) > self.node_tokens:
            starts = counts.cumsum(0) - counts
            kept = torch.arange(len(pieces), device=pieces.device) - starts[pieces] < self.node_tokens
            pieces, keys, tokens, codes = pieces[kept], keys[kept], tokens[kept], codes[kept]
        sums = keys.new_zeros(len(nodes), keys.shape[-1]).index_add(0, pieces, keys)
        pooled = F.normalize(sums, dim=-1)
        grown = SemanticRow(
            values=torch.cat([row.values, to_stored(codes, CODE_STEPS, row.values.dtype)]),
            keys=torch.cat([row.keys, to_stored(keys, KEY_STEPS, row.keys.dtype)]),
            tokens=torch.cat([row.tokens, tokens]),
            owner=torch.cat([row.owner, pieces + len(row.nodes)]),
            pooled=torch.cat([row.pooled, pooled]),
            nodes=self.resolve(row, pooled, nodes),
        )
        if any(node.session > nodes[0].session for node in row.nodes):  # written out of order: later turns repeat it
            return self.relink(grown, range(len(row.nodes), len(grown.nodes)))
        return grown

    def resolve(self, row: SemanticRow, pooled: Tensor, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """``Resolve(tau_s)``: a turn that a later session repeats is superseded by the turn there most like it.

        It stays as history, linked to what replaced it and no longer found. The first later session that repeats it counts,
        so that repeated updates form a chain. Date lines neither supersede nor are superseded.

        Args:
            row: the nodes so far, in whatever order their sessions were written.
            pooled: pooled keys of the new nodes, ``(n, K)``, unit length.
            nodes: the new nodes, of one session.
        """
        if not row.nodes:
            return tuple(nodes)
        is_turn = torch.tensor([not node.is_session for node in nodes], device=pooled.device)
        alike = (row.pooled @ pooled.T).detach().float().masked_fill(~is_turn, -1.0)
        cosine, newer = alike.max(-1)
        session = nodes[0].session

        def is_repeated(node: Node) -> bool:
            link = node.superseded_by
            return not node.is_session and node.session < session and (link is None or link[0] > session)

        old = (
            replace(node, superseded_by=nodes[j].key) if c > self.tau_s and is_repeated(node) else node
            for node, c, j in zip(row.nodes, cosine.tolist(), newer.tolist(), strict=True)
        )
        return (*old, *nodes)

    def relink(self, row: SemanticRow, lost: Sequence[int]) -> SemanticRow:
        """Resolve some nodes again, whose newer version was forgotten: against the sessions that came after them."""
        nodes = list(row.nodes)
        for i in lost:
            nodes[i] = replace(nodes[i], superseded_by=None)
        # chronological: the first session with a turn above tau_s replaces, as it did when it was written
        later = sorted({node.session for node in nodes})
        for i in lost:
            for session in (s for s in later if s > nodes[i].session):
                members = [j for j, node in enumerate(nodes) if node.session == session]
                alone = replace(row, pooled=row.pooled[i : i + 1], nodes=(nodes[i],))
                nodes[i] = self.resolve(alone, row.pooled[members], [nodes[j] for j in members])[0]
        return replace(row, nodes=tuple(nodes))

    def settle(self, rows: Sequence[SemanticRow], states: Sequence[MemoryState]) -> list[MemoryState]:
        """Banks put into the states of their conversations: salience by episodic memory, ``Pi_Cs``, embeddings."""
        summaries = torch.stack([_mean_or_zero(state.episodic[0][state.episodic_mask[0]]) for state in states])
        sizes = [len(row.nodes) for row in rows]
        repeated = summaries.repeat_interleave(torch.tensor(sizes, device=summaries.device), 0)
        scored = self.score_salience(torch.cat([row.pooled for row in rows]), repeated).split(sizes)
        pruned, salience = zip(*map(self.prune, rows, scored), strict=True)
        return [
            replace(
                state,
                values=row.values[None],
                keys=row.keys[None],
                tokens=row.tokens[None],
                owner=row.owner[None],
                pooled=row.pooled[None],
                embedding=embedding[None],
                salience=salience[None],
                nodes=(row.nodes,),
            )
            for state, row, salience, embedding in zip(states, pruned, salience, self.embed(pruned), strict=True)
        ]

    def score_salience(self, pooled: Tensor, episodic: Tensor) -> Tensor:
        """Learned salience of nodes ``(N, K)``, each given an episodic summary ``(N, R)``: ``(N,)``."""
        of_node, of_summary = self.salience.weight[0].split([pooled.shape[-1], episodic.shape[-1]])
        return pooled @ of_node + F.rms_norm(episodic, episodic.shape[-1:]) @ of_summary

    def prune(self, row: SemanticRow, salience: Tensor) -> tuple[SemanticRow, Tensor]:
        """``Pi_Cs``: keep the turns first by salience and length, then by degree in the graph, then the newer; order stays.

        Salience is learned from zero, so that length, degree and recency decide at the start. The date line of a session is
        kept exactly as long as one of its turns is, and counts towards ``c_s`` nodes and ``c_m`` token slots: a turn is
        passed over where it would not fit together with its date line. Links to turns that are gone stay as provenance.
        """
        if len(row.nodes) <= self.c_s and len(row.owner) <= self.c_m:
            return row, salience
        size = torch.bincount(row.owner, minlength=len(row.nodes)).tolist()
        lengths = torch.tensor(size, device=salience.device, dtype=torch.float).clamp_min(1).log()
        weight, degree = (salience.detach().float() + LENGTH * lengths).tolist(), degrees(row.nodes)
        header = {node.session: i for i, node in enumerate(row.nodes) if node.is_session}
        turns = [i for i, node in enumerate(row.nodes) if not node.is_session]
        kept: set[int] = set()
        slots = 0
        for i in sorted(turns, key=lambda i: (-weight[i], -degree[i], -i)):
            wanted = {i, header.get(row.nodes[i].session, i)} - kept
            more = sum(size[node] for node in wanted)
            if len(kept) + len(wanted) <= self.c_s and slots + more <= self.c_m:
                kept |= wanted
                slots += more
        positions = sorted(kept)
        return row.take(positions), salience[positions]

    def embed(self, rows: Sequence[SemanticRow]) -> list[Tensor]:
        """``E``: rounds of mean-neighbour messages over the graph of each conversation, ``(N, K)``, unit length."""
        embedding = torch.cat([row.pooled for row in rows])
        sizes = [len(row.nodes) for row in rows]
        starts = itertools.accumulate(sizes[:-1], initial=0)
        pairs = [
            (start + i, start + j) for start, row in zip(starts, rows, strict=True) for i, j, _ in edges(row.nodes)
        ]
        if pairs:
            one, other = torch.tensor(pairs, device=embedding.device).T
            source, target = torch.cat([one, other]), torch.cat([other, one])
            degree = torch.bincount(target, minlength=len(embedding))[:, None]
            share = degree.clamp_min(1).reciprocal().to(embedding.dtype)
            for _ in range(self.steps):
                received = torch.zeros_like(embedding).index_add(0, target, embedding[source]) * share
                # a node without neighbours receives nothing, and stays as it is
                embedding = F.normalize(embedding + self.message(received), dim=-1)
        return list(embedding.split(sizes))


def _mean_or_zero(slots: Tensor) -> Tensor:
    """``(n, R)`` to ``(R,)``."""
    return slots.mean(0) if len(slots) else slots.new_zeros(slots.shape[-1])
