"""How the event nodes of a batch lie: their sessions, speakers, months and neighbours, as tensors for the search.

None of it depends on a query, so a state works it out once, see :attr:`mlmf.memory.state.MemoryState.layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlmf.memory.graph import edges
from mlmf.memory.nodes import Node

NOWHERE = -1


@dataclass(frozen=True)
class Layout:
    """Facts about ``N`` node places in each of ``B`` conversations; places beyond a conversation's nodes are empty."""

    session: Tensor
    """Number of a node's session among those held, from 1, ``(B, N)``; 0 where empty."""
    findable: Tensor
    """``(B, N)`` bool; false for empty places, superseded turns and nodes that stand for a session."""
    newest_first: Tensor
    """Places by session and turn, the latest first, after the empty ones, ``(B, N)``."""
    before: Tensor
    """Place of the turn before in the same session, ``(B, N)``; -1 where there is none."""
    after: Tensor
    """The same of the turn after."""
    month: Tensor
    """Months since year 0 of a node's date, ``(B, N)``; -1 where it is not known."""
    speaker: Tensor
    """Number of a turn's speaker in :attr:`speakers`, ``(B, N)``; -1 where there is none."""
    speakers: tuple[tuple[str, ...], ...]
    """Who speaks in each conversation."""
    ties: Tensor
    """Turns that mention the same entity, both ways, as columns of conversation, place, other place, ``(3, E)``."""
    n_nodes: Tensor
    """Nodes held, ``(B,)``."""
    n_sessions: Tensor
    """Sessions held, ``(B,)``."""

    @property
    def most_sessions(self) -> int:
        """Sessions of the conversation that holds most."""
        return int(self.n_sessions.max()) if len(self.n_sessions) else 0

    @classmethod
    def of(cls, rows: Sequence[Sequence[Node]], size: int, device: torch.device) -> Layout:
        """Lay out the nodes of each conversation in ``size`` places."""

        def filled(row: list[int], empty: int) -> list[int]:
            return row + [empty] * (size - len(row))

        columns: dict[str, list[list[int]]] = {name: [] for name in _COLUMNS}
        speakers, counts, ties = [], [], []
        for number, row in enumerate(rows):
            sessions = {s: i for i, s in enumerate(dict.fromkeys(node.session for node in row), start=1)}
            names = {name: i for i, name in enumerate(dict.fromkeys(node.speaker for node in row if node.speaker))}
            before, after = _neighbours(row)
            # sessions may be written out of order: what was said last is newest, not what was read last
            order = sorted(range(len(row)), key=lambda i: row[i].key, reverse=True)
            columns["session"].append(filled([sessions[node.session] for node in row], 0))
            columns["findable"].append(filled([not (node.is_session or node.superseded) for node in row], 0))
            columns["newest_first"].append([*range(len(row), size), *order])
            columns["before"].append(filled(before, NOWHERE))
            columns["after"].append(filled(after, NOWHERE))
            columns["month"].append(filled([_month(node) for node in row], NOWHERE))
            columns["speaker"].append(filled([names.get(node.speaker, NOWHERE) for node in row], NOWHERE))
            speakers.append(tuple(names))
            counts.append((len(row), len(sessions)))
            for i, j, kind in edges(row):
                if kind == "same_entity":
                    ties += [(number, i, j), (number, j, i)]
        made = {name: torch.tensor(column, dtype=torch.long, device=device) for name, column in columns.items()}
        made["findable"] = made["findable"].bool()
        held = torch.tensor(counts, device=device).view(-1, 2)
        return cls(
            **made,
            speakers=tuple(speakers),
            ties=torch.tensor(ties, dtype=torch.long, device=device).view(-1, 3).T,
            n_nodes=held[:, 0],
            n_sessions=held[:, 1],
        )

    def row(self, i: int) -> Layout:
        """One conversation of the batch, with its padding."""
        ties = self.ties[:, self.ties[0] == i]
        return Layout(
            **{name: getattr(self, name)[i, None] for name in _COLUMNS},
            speakers=(self.speakers[i],),
            ties=torch.cat([torch.zeros_like(ties[:1]), ties[1:]]),
            n_nodes=self.n_nodes[i, None],
            n_sessions=self.n_sessions[i, None],
        )

    def take(self, kept: Tensor) -> Layout:
        """The layout of some places of a single conversation, in ascending order, ``(n,)``: as if it held no other.

        Sessions keep their numbers, and counts stay those of the whole conversation: a word is as rare as it was.
        """
        place = torch.full((self.session.shape[1] + 1,), NOWHERE, device=kept.device)
        place[kept] = torch.arange(len(kept), device=kept.device)  # the entry of -1, the last one, stays -1
        number, one, other = self.ties
        ties = torch.stack([number, place[one], place[other]])
        newest = place[self.newest_first[0]]
        return Layout(
            session=self.session[:, kept],
            findable=self.findable[:, kept],
            newest_first=newest[newest != NOWHERE][None],
            before=place[self.before[:, kept]],
            after=place[self.after[:, kept]],
            month=self.month[:, kept],
            speaker=self.speaker[:, kept],
            speakers=self.speakers,
            ties=ties[:, (ties[1:] != NOWHERE).all(0)],
            n_nodes=self.n_nodes,
            n_sessions=self.n_sessions,
        )


_COLUMNS = ("session", "findable", "newest_first", "before", "after", "month", "speaker")


def _neighbours(row: Sequence[Node]) -> tuple[list[int], list[int]]:
    """For each node the turns before and after it in its session."""
    before, after = [NOWHERE] * len(row), [NOWHERE] * len(row)
    last: dict[int, int] = {}
    for i in sorted((i for i, node in enumerate(row) if not node.is_session), key=lambda i: row[i].key):
        if (previous := last.get(row[i].session)) is not None:
            before[i], after[previous] = previous, i
        last[row[i].session] = i
    return before, after


def _month(node: Node) -> int:
    return NOWHERE if node.date is None else int(node.date[:4]) * 12 + int(node.date[5:7]) - 1
