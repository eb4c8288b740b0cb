"""What Cognis keeps: messages as they were said, and facts taken from them, each with its place in a version chain."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mlmf.retrieval.dates import Span
from mlmf.types import format_date

Kind = Literal["message", "fact"]
Action = Literal["ADD", "UPDATE", "DELETE", "NONE"]


@dataclass(frozen=True, slots=True)
class Memory:
    """One entry. Its words never change: a fact that changes gets a new version, which names the old one."""

    id: str
    kind: Kind
    speaker: str
    text: str
    said: datetime | None
    """When it was said, and so from when on it was known."""
    session: int
    position: int
    """Number of its message among all of the user's."""
    turn_ids: tuple[str, ...]
    """The turns it says something of."""
    chain: str
    """Id of the first version of the fact."""
    entities: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    """The days it speaks of."""
    topic: str = ""
    """What a speaker has one of at a time, such as ``anna|home``; empty for all else."""
    version: int = 1
    replaces_id: str | None = None
    """Id of the version before."""
    is_current: bool = True
    closed: datetime | None = None
    """When it was replaced or withdrawn; None while it is current, and where that was said without a date."""

    @property
    def searchable(self) -> str:
        """What is indexed: ``Anna: I live in Lisbon.``."""
        return f"{self.speaker}: {self.text}"

    @property
    def line(self) -> str:
        """What a model is shown: ``[8 May 2023] Anna: I live in Lisbon.``."""
        return f"[{format_date(self.said)}] {self.searchable}"

    def known_on(self, moment: datetime) -> bool:
        """Whether it was known at a moment: said by then, and not replaced by then. Undated is known at all times."""
        if self.said is not None and self.said > moment:
            return False
        return self.is_current or (self.closed is not None and self.closed > moment)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact found in messages, before it is held against what is known."""

    speaker: str
    text: str
    said: datetime | None
    session: int
    position: int
    turn_ids: tuple[str, ...]
    entities: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    topic: str = ""

    @property
    def searchable(self) -> str:
        """As :attr:`Memory.searchable`."""
        return f"{self.speaker}: {self.text}"

    @property
    def line(self) -> str:
        """As :attr:`Memory.line`."""
        return f"[{format_date(self.said)}] {self.searchable}"

    def as_memory(self, replaced: Memory | None = None) -> Memory:
        """A new fact, or the next version of the one it replaces."""
        name = new_id()
        return Memory(
            id=name,
            kind="fact",
            speaker=self.speaker,
            text=self.text,
            said=self.said,
            session=self.session,
            position=self.position,
            turn_ids=self.turn_ids,
            chain=replaced.chain if replaced else name,
            entities=self.entities,
            spans=self.spans,
            topic=self.topic,
            version=replaced.version + 1 if replaced else 1,
            replaces_id=replaced.id if replaced else None,
        )


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an extractor makes of messages."""

    candidates: tuple[Candidate, ...]
    failures: tuple[str, ...] = ()
    """Why there is nothing of a part of the messages, or of a fact that was found in them: one reason each."""


@dataclass(frozen=True, slots=True)
class Similar:
    """A current fact that may be about the same thing as a candidate."""

    memory: Memory
    score: float
    """Cosine of the two, from -1 to 1."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a candidate."""

    action: Action
    replaces: Memory | None = None
    """The fact that is replaced (UPDATE) or withdrawn (DELETE)."""


_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """An id of its own; those of one process sort in the order in which they were made."""
    global _last
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return f"{_last:016x}{os.urandom(4).hex()}"


def made_at(memory_id: str) -> int:
    """When an id was made: nanoseconds since 1970."""
    return int(memory_id[:16], 16)
