"""Forgetting: taking out of a conversation's memory whatever came from a session, an entity, or some time on.

A token's state has read every earlier token of its session, so what follows a forgotten turn in its session is forgotten
with it. Everything here is decided by provenance: the session, turn, date, speaker and entities that event nodes keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time

import torch
from torch import Tensor

from mlmf.errors import UserError
from mlmf.memory.entities import is_mentioned
from mlmf.memory.episodic import EpisodicMemory
from mlmf.memory.nodes import Node
from mlmf.memory.rounding import CODE_STEPS, KEY_STEPS, from_stored
from mlmf.memory.semantic import SemanticMemory, SemanticRow
from mlmf.memory.state import MemoryState

Gone = Callable[[int, int], bool]
"""``gone(session, turn)``: whether what was said there is to be forgotten; a date line is turn -1."""

END = 1 << 30
"""A turn after every other of its session."""


def what_goes(
    nodes: Sequence[Node], *, session: int | None = None, entity: str | None = None, since: date | None = None
) -> Gone:
    """What is to be forgotten, as a rule over sessions and turns.

    Args:
        nodes: the conversation's event nodes.
        session: index of a session, all of which goes.
        entity: a name or thing. In every session the first turn that has it among its entities, in its words or as its
            speaker goes, and every turn after that.
        since: a day or moment. Every session from then on goes, and every session of unknown date that came after the
            last one known to be earlier.

    Raises:
        UserError: not exactly one of the three is given.
    """
    given = {"session": session, "entity": entity, "since": since}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise UserError(f"forget one thing at a time, session, entity or since: got {', '.join(named) or 'none'}")
    if session is not None:
        return lambda s, _: s == session
    if entity is not None:
        return _mentions(nodes, entity)
    assert since is not None  # the only one left
    return _from(nodes, since)


def _mentions(nodes: Sequence[Node], entity: str) -> Gone:
    wanted = entity.strip().lower()
    first: dict[int, int] = {}
    for node in nodes:
        said = node.line.partition("] ")[2]  # speaker and text, without the date
        if not node.is_session and (wanted in node.entities or is_mentioned(wanted, said)):
            first[node.session] = min(node.turn, first.get(node.session, END))
    return lambda s, t: s in first and t >= first[s]


def _from(nodes: Sequence[Node], since: date) -> Gone:
    moment = since if isinstance(since, datetime) else datetime.combine(since, time.min)
    # the clock at the place of the session is what counts, as where dates are read from files
    moment = moment.replace(tzinfo=None)
    dates = {n.session: datetime.fromisoformat(n.date).replace(tzinfo=None) for n in nodes if n.date is not None}
    before = {s for s, day in dates.items() if day < moment}
    last = max(before, default=-1)
    return lambda s, _: s not in before and (s in dates or s > last)


def survivors(nodes: Sequence[Node], gone: Gone) -> list[int]:
    """Positions of the nodes that stay; a date line stays exactly as long as a turn of its session does."""
    turns = [i for i, node in enumerate(nodes) if not node.is_session and not gone(node.session, node.turn)]
    alive = {nodes[i].session for i in turns}
    headers = [i for i, node in enumerate(nodes) if node.is_session and node.session in alive]
    return sorted(turns + headers)


def forget_row(
    row: MemoryState, gone: Gone, episodic: EpisodicMemory | None, semantic: SemanticMemory | None
) -> MemoryState:
    """One conversation, without padding, after forgetting; see :meth:`MultiLayerMemory.forget` for what that means."""
    known = row.held_sessions(0)
    kept = survivors(row.nodes[0], gone)
    latest = row.latest[0]
    if latest >= 0 and gone(latest, END):
        empty = torch.zeros_like(row.working_mask)
        row = replace(row, working=torch.zeros_like(row.working), working_mask=empty, latest=(-1,))
    bank = SemanticRow.of(row).take(kept)
    if episodic is not None:
        slots, mask = replay(episodic, bank, torch.zeros_like(row.episodic[0]))
        row = replace(row, episodic=slots[None], episodic_mask=mask[None])
    if semantic is not None:
        lost = [i for i, n in enumerate(bank.nodes) if n.superseded_by is not None and gone(*n.superseded_by)]
        row = semantic.settle([semantic.relink(bank, lost)], [row])[0]
    something = bool(row.nodes[0]) or bool(row.working_mask.any()) or bool(row.episodic_mask.any())
    count = max(1, row.sessions[0] - len(known - row.held_sessions(0))) if something else 0
    return replace(row, sessions=(count,))


def replay(episodic: EpisodicMemory, bank: SemanticRow, empty: Tensor) -> tuple[Tensor, Tensor]:
    """Episodic slots ``(C_e, R)`` and mask written anew from the sessions of a bank, one after another."""
    slots, mask = empty, torch.zeros(empty.shape[0], dtype=torch.bool, device=empty.device)
    codes = from_stored(bank.values, CODE_STEPS, empty.dtype)
    keys = from_stored(bank.keys, KEY_STEPS, empty.dtype)
    for session in dict.fromkeys(node.session for node in bank.nodes):
        members = torch.tensor([node.session == session for node in bank.nodes], device=empty.device)
        tokens = members[bank.owner]
        slots, mask = episodic(slots, mask, codes[tokens], keys[tokens])
    return slots, mask
