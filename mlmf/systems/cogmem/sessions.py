"""The session manager: which stored dialogue an input continues, and what is removed when nobody needs it any more.

Turns form a tree. The key of a turn is a digest of everything said up to it, so dialogues that begin alike share the
records of their beginning. Each record counts what stands on it: the sessions whose last turn it is, and the turns that
follow it. With the last of them it goes.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlmf.systems.cogmem.records import Notes, NoteUpdate, Said, SessionRecord, TurnRecord, said_in_exchange
from mlmf.systems.cogmem.stores import Records, SessionStore

Exchange = tuple[str, str]
"""What a user said and what was replied."""
State = Literal["exact", "inherited", "new"]


@dataclass(frozen=True, slots=True)
class Found:
    """How an input relates to what is stored."""

    state: State
    """``exact``: this very input was answered before. ``inherited``: a stored dialogue is its beginning. Else ``new``."""
    session: SessionRecord
    turns: tuple[TurnRecord, ...]
    """The stored beginning of the dialogue."""
    unknown: tuple[Exchange, ...]
    """Exchanges between that beginning and the new input, which took place elsewhere."""
    reply: str | None = None
    """What was answered before, where the state is ``exact``."""


class SessionManager:
    """Finds, extends and removes sessions in a store. Nothing here asks a model."""

    def __init__(self, store: SessionStore, *, lifetime: float, now: Callable[[], float] = time.time) -> None:
        """Manage the sessions of a store.

        Args:
            store: where they are.
            lifetime: seconds without use after which a session is over.
            now: seconds since the epoch.
        """
        self.store, self.lifetime, self.now = store, lifetime, now

    def find(self, user: str, dialogue: Sequence[Exchange], asked: str, *, opening: str = "") -> Found:
        """Find what is stored of a dialogue, or begin a session.

        Args:
            user: whose dialogue.
            dialogue: the exchanges so far.
            asked: the new input.
            opening: what the dialogue stands under, such as a system message; another one makes another dialogue.
        """

        def search(records: Records) -> Found:
            turns: list[TurnRecord] = []
            key = opening_key(opening)
            for said, reply in dialogue:
                key = _key(key, _texts(said_in_exchange(said, reply)))
                turn = _find(records, key)
                if turn is None:
                    break
                turns.append(turn)
            head = turns[-1].key if turns else None
            unknown = tuple(dialogue[len(turns) :])
            answered = records.get("answer", _key(head or opening_key(opening), [asked]))
            if answered is not None and not unknown:
                turn = _load(records, answered)
                session = self._session_at(records, turn.key) or self._begin(records, turn.key)
                self._touch(records, session)
                return Found("exact", session, tuple(turns), (), turn.reply)
            session = (self._session_at(records, head) if head else None) or self._begin(records, head)
            self._touch(records, session)
            return Found("inherited" if turns else "new", session, tuple(turns), unknown)

        return self.store.change(user, search)

    def begin(self, user: str) -> SessionRecord:
        """Begin an empty session."""
        return self.store.change(user, lambda records: self._begin(records, None))

    def append(
        self,
        user: str,
        session: SessionRecord,
        said: Sequence[Said],
        *,
        asked: str | None = None,
        reply: str = "",
        label: str | None = None,
        insights: Sequence[str] = (),
        opening: str = "",
        is_pending: bool = True,
    ) -> tuple[SessionRecord, TurnRecord]:
        """Add a turn, marked as pending until its notes are updated. It is stored when this returns.

        Args:
            user: whose session.
            session: as the last call returned it. Where another call has extended the session meanwhile, the turn
                begins a session of its own at the place it belongs to.
            said: what was said.
            asked: the input that ``reply`` answers, to be answered the same way when it comes again.
            reply: what the user was answered.
            label: name of the turn; ``T`` and its number if not given.
            insights: ids of the insights that the session began with.
            opening: see :meth:`find`.
            is_pending: whether the memory agent is to read the turn.
        """

        def extend(records: Records) -> tuple[SessionRecord, TurnRecord]:
            # the session may have been ended meanwhile: then the turn begins a dialogue of its own
            parent = _find(records, session.head)
            start = parent.key if parent else opening_key(opening)
            answer = None if asked is None else _key(start, [asked])
            key = _key(start, _texts(said))
            turn = _find(records, key)
            if turn is None:
                number = parent.number + 1 if parent else 1
                turn = TurnRecord(
                    key=key,
                    parent=parent.key if parent else None,
                    number=number,
                    label=label or f"T{number}",
                    said=tuple(said),
                    reply=reply,
                    answer=answer,
                    insights=tuple(insights),
                )
                records.set("turn", key, turn.model_dump_json())
                if is_pending:
                    records.set("pending", key, "")
                if parent:
                    _count(records, parent.key, +1)
            if turn.answer is not None:
                records.set("answer", turn.answer, key)
            current = records.get("session", session.id)
            if current is None or SessionRecord.model_validate_json(current).head != session.head:
                moved = self._begin(records, key)
            else:
                _count(records, key, +1)
                if session.head:
                    _count(records, session.head, -1)
                moved = session.model_copy(update={"head": key})
            self._touch(records, moved)
            return moved, turn

        return self.store.change(user, extend)

    def turns(self, user: str, head: str | None) -> tuple[TurnRecord, ...]:
        """The dialogue up to a turn, oldest first; empty if the turn is gone."""

        def walk(records: Records) -> tuple[TurnRecord, ...]:
            found = []
            turn = _find(records, head)
            while turn is not None:
                found.append(turn)
                turn = _find(records, turn.parent)
            return tuple(found[::-1])

        return self.store.change(user, walk)

    def unread(self, user: str, head: str) -> tuple[Notes, list[TurnRecord]]:
        """The turns up to one that the memory agent has not read, oldest first, and the notes before them."""

        def walk(records: Records) -> tuple[Notes, list[TurnRecord]]:
            found: list[TurnRecord] = []
            turn = _find(records, head)
            while turn is not None and turn.notes is None:
                found.append(turn)
                turn = _find(records, turn.parent)
            return (turn and turn.notes) or (), found[::-1]

        return self.store.change(user, walk)

    def settle(self, user: str, key: str, update: NoteUpdate) -> None:
        """Store the notes after a turn, which is then no longer pending."""

        def write(records: Records) -> None:
            records.delete("pending", key)
            turn = _find(records, key)
            if turn is not None:
                changed = turn.model_copy(update={"notes": update.notes, "summary": update.summary})
                records.set("turn", key, changed.model_dump_json())

        self.store.change(user, write)

    def pending(self, user: str) -> list[str]:
        """Keys of the turns whose notes are not updated yet, oldest first."""

        def read(records: Records) -> list[str]:
            turns = [_load(records, key) for key in records.all("pending")]
            return [turn.key for turn in sorted(turns, key=lambda turn: (turn.number, turn.key))]

        return self.store.change(user, read)

    def sessions(self, user: str) -> list[SessionRecord]:
        """The user's sessions, latest used first."""
        return self.store.change(user, _sessions)

    def end(self, user: str, session_id: str) -> None:
        """Mark a session as over; :meth:`remove` takes it away once it is reviewed."""

        def mark(records: Records) -> None:
            record = records.get("session", session_id)
            if record is not None:
                over = SessionRecord.model_validate_json(record).model_copy(update={"is_over": True})
                records.set("session", session_id, over.model_dump_json())

        self.store.change(user, mark)

    def over(self, user: str) -> list[SessionRecord]:
        """Sessions that were ended, or not used within their lifetime."""
        return [session for session in self.sessions(user) if self._is_over(session)]

    def remove(self, user: str, session: SessionRecord) -> bool:
        """Remove a session that is over, and every turn that no other session shares.

        Returns:
            Whether it was removed: not if it has been used again since it was found to be over.
        """

        def take_away(records: Records) -> bool:
            record = records.get("session", session.id)
            if record is None:
                return False
            current = SessionRecord.model_validate_json(record)
            if current.head != session.head or not self._is_over(current):
                return False
            records.delete("session", session.id)
            if current.head:
                _count(records, current.head, -1)
            return True

        return self.store.change(user, take_away)

    def _begin(self, records: Records, head: str | None) -> SessionRecord:
        session = SessionRecord(id=uuid.uuid4().hex, head=head, last_used=self.now())
        if head:
            _count(records, head, +1)
        records.set("session", session.id, session.model_dump_json())
        return session

    def _session_at(self, records: Records, head: str) -> SessionRecord | None:
        return next((session for session in _sessions(records) if session.head == head and not session.is_over), None)

    def _touch(self, records: Records, session: SessionRecord) -> None:
        records.set("session", session.id, session.model_copy(update={"last_used": self.now()}).model_dump_json())

    def _is_over(self, session: SessionRecord) -> bool:
        return session.is_over or session.last_used + self.lifetime < self.now()


def opening_key(opening: str) -> str:
    """Key of the place before the first turn."""
    return _key("", [opening])


def _key(parent: str, texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([parent, *texts]).encode()).hexdigest()


def _texts(said: Sequence[Said]) -> list[str]:
    return [part for one in said for part in (one.header, one.text)]


def _find(records: Records, key: str | None) -> TurnRecord | None:
    record = records.get("turn", key) if key else None
    return None if record is None else TurnRecord.model_validate_json(record)


def _load(records: Records, key: str) -> TurnRecord:
    turn = _find(records, key)
    assert turn is not None, "a turn that something refers to is in the store"
    return turn


def _sessions(records: Records) -> list[SessionRecord]:
    found = [SessionRecord.model_validate_json(record) for record in records.all("session").values()]
    return sorted(found, key=lambda session: (-session.last_used, session.id))


def _count(records: Records, key: str, change: int) -> None:
    """Add to the references of a turn; at none it goes, and lets go of the turn before it."""
    while True:
        turn = _load(records, key)
        if turn.references + change > 0:
            records.set(
                "turn", key, turn.model_copy(update={"references": turn.references + change}).model_dump_json()
            )
            return
        records.delete("turn", key)
        records.delete("pending", key)
        if turn.answer is not None and records.get("answer", turn.answer) == key:
            records.delete("answer", turn.answer)
        if turn.parent is None:
            return
        key, change = turn.parent, -1
