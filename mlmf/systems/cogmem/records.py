"""What CogMem stores: turns, the notes after each of them, sessions, insights. All of it is read and written as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

NoteKind = Literal["conclusion", "goal", "plan"]


class Record(BaseModel):
    """A value: a change makes another record."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Note(Record):
    """One thing to keep in mind during a session."""

    kind: NoteKind
    text: str
    turn: str = ""
    """Label of the turn that it was written down after."""


Notes = tuple[Note, ...]
"""The direct-access memory of a session, oldest first."""


class Said(Record):
    """Something that was said, and by whom."""

    header: str
    """Such as ``User:`` or ``[8 May 2023] Caroline:``."""
    text: str

    @property
    def line(self) -> str:
        """Both together."""
        return f"{self.header} {self.text}"


class TurnRecord(Record):
    """One turn of a dialogue, as it stands in the store: part of a tree, since dialogues share their beginnings."""

    key: str
    """Digest of everything said up to here; it finds the turn again when a dialogue comes back."""
    parent: str | None
    """Key of the turn before."""
    number: int
    """Position in the dialogue, from 1."""
    label: str
    """How prompts and answers name the turn; unique within its dialogue."""
    said: tuple[Said, ...]
    reply: str = ""
    """What the user was answered; part of ``said`` where there was one."""
    answer: str | None = None
    """Digest of the dialogue before and the input, by which ``reply`` is found when both come again."""
    insights: tuple[str, ...] = ()
    """Ids of the long-term insights that the session began with."""
    summary: str | None = None
    """The turn in one line; None until the memory agent has read it."""
    notes: Notes | None = None
    """The session's notes after this turn; None until then, too."""
    references: int = 0
    """Sessions that stand at this turn, and turns that follow it. At none the turn is removed."""

    @property
    def text(self) -> str:
        """The turn in full, a line for each thing said."""
        return "\n".join(said.line for said in self.said)


class SessionRecord(Record):
    """Where a dialogue stands."""

    id: str
    head: str | None
    """Key of its last turn; None before the first."""
    last_used: float
    """Seconds since the epoch."""
    is_over: bool = False
    """Ended, and waiting for the review before it is removed."""


class Insight(Record):
    """What the long-term memory keeps of past sessions."""

    id: str
    text: str
    sources: tuple[str, ...] = ()
    """Labels of the turns that it was distilled from."""


class NoteUpdate(Record):
    """What the memory agent makes of a turn."""

    notes: Notes
    summary: str


class Verdict(Record):
    """What becomes of an insight that the review of a session brought up."""

    action: Literal["add", "merge", "exclude"]
    text: str = ""
    """The words to keep."""
    merge_with: str | None = None
    """Id of the stored insight whose place it takes."""


def said_in_exchange(user: str, reply: str) -> tuple[Said, ...]:
    """An exchange of a chat as what was said; an empty reply is left out."""
    spoken = (Said(header="User:", text=user),)
    return (*spoken, Said(header="Assistant:", text=reply)) if reply else spoken


def open_notes(turns: Sequence[TurnRecord]) -> Notes:
    """The notes that the last turn with any of them left."""
    return next((turn.notes for turn in reversed(turns) if turn.notes is not None), ())
