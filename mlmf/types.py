"""The records every part of the package speaks: plain frozen dataclasses, no torch.

Files are read into :class:`Conversation` records by ``mlmf.data``; memory systems see only :class:`Session` and
:class:`Query`; the gold side (answer, evidence, category) stays in :class:`Question`, on the harness's side of the wall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

EvidenceStatus = Literal["ok", "repaired", "partly_unresolved", "unresolved", "none"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance. ``id`` is unique within its conversation (LoCoMo keeps its own ``D<session>:<turn>``)."""

    id: str
    speaker: str
    text: str
    caption: str | None = None
    """What a shared picture shows, where the data describes one."""

    @property
    def content(self) -> str:
        """The text a memory reads: the utterance, then the caption of the picture shared with it."""
        if not self.caption:
            return self.text
        return f"{self.text} [shares a picture: {self.caption}]".strip()


@dataclass(frozen=True, slots=True)
class Session:
    """Turns that belong together in time. ``index`` is 0-based and chronological within the conversation."""

    index: int
    date: datetime | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """All that a memory system may see of a question: its words, and when it is asked."""

    text: str
    date: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold side. Keyed by ``(conversation_id, index)``, never by text: texts repeat."""

    conversation_id: str
    index: int
    text: str
    answer: str | None
    """Gold answer; ``None`` where the right reaction is to abstain (LOCCO traps, most of LoCoMo's category 5)."""
    category: int | None = None
    """LoCoMo: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial. LOCCO: the period 1 to 6."""
    is_trap: bool = False
    """True where nothing in the conversation answers the question, so the right reaction is to abstain."""
    lure: str | None = None
    """What a confused memory would say (LoCoMo's ``adversarial_answer``, the probes' ``lure``)."""
    evidence: tuple[str, ...] = ()
    """Ids of the turns that hold the answer, repaired where the file is malformed."""
    evidence_status: EvidenceStatus = "none"
    id: str = ""
    """The data's own id where it has one, else ``<conversation_id>#<index>``."""
    date: datetime | None = None
    session: int | None = None
    """0-based index of the session that holds the answer, where the data names one."""

    @property
    def query(self) -> Query:
        """The side that a system may see."""
        return Query(self.text, self.date)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions in chronological order between the same speakers, and the questions asked about them."""

    id: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...] = ()
    speakers: tuple[str, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn of every session, in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a system answered, and what it cost."""

    text: str
    abstained: bool = False
    recalled: tuple[str, ...] = ()
    """Ids of the turns the system read for this answer, best first."""
    gates: dict[str, float] = field(default_factory=dict)
    """Mean share of each memory layer (``working``, ``episodic``, ``semantic``) in the read, where there is one."""
    tokens_read: int = 0
    """Prompt tokens the answering model read."""
    tokens_written: int = 0
    """With the one that ended the answer."""
    seconds: float = 0.0
    """Of the whole batch, over the answers in it."""
    seconds_decoding: float = 0.0
    """Of these, writing all tokens but the first; 0 where that cannot be told."""
    recalled_lines: tuple[str, ...] = ()
    """The recalled turns as dated lines, for people to look at; the model saw them only in text mode."""
    turns_left_out: int = 0
    """Turns for which there was no room: in the model's window where a system shows everything, or in a full memory."""


def format_date(date: datetime | None) -> str:
    """``8 May 2023``: the one way a date is written for a model, whatever the locale."""
    if date is None:
        return "undated"
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


def format_month(date: datetime) -> str:
    """``May 2023``, as people say it."""
    return f"{MONTHS[date.month - 1]} {date.year}"


MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def format_line(turn: Turn, date: datetime | None) -> str:
    """``[8 May 2023] Caroline: ...``: a remembered turn as text."""
    return f"[{format_date(date)}] {turn.speaker}: {turn.content}"


def answer_prompt(query: Query, lines: Sequence[str] = ()) -> str:
    """What the model is asked: recalled lines if there are any, then the question, with its date where it has one."""
    shown = "".join(f"{line}\n" for line in lines)
    asked = f" ({format_date(query.date)})" if query.date else ""
    return f"{shown}Question{asked}: {query.text}\nAnswer:"
