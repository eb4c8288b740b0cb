"""LongMemEval (Wu et al., ICLR 2025): 500 questions, each about a history of its own between a user and an assistant.

The benchmark's files (``longmemeval_s``, ``_m`` and ``_oracle``) are not in any repository; a user's file is read as it is.
Every question becomes a conversation with one question. Its type is the category, and a question whose id says ``_abs`` is a
trap: nothing in its history answers it, and its gold answer says why. Sessions are put in the order of their dates (the
oracle file has them otherwise); the same filler session may stand in a history twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from mlmf.data.locomo import number_as_text
from mlmf.data.reading import Date, NonBlank, Record, Text, checked, parse_json, read_text, shown, unique
from mlmf.errors import UserError
from mlmf.types import Conversation, EvidenceStatus, Question, Session, Turn

TYPE_NAMES = {
    1: "single-session-user",
    2: "single-session-assistant",
    3: "single-session-preference",
    4: "multi-session",
    5: "temporal-reasoning",
    6: "knowledge-update",
}
"""The benchmark's question types, under numbers of this package."""
ABSTENTION_MARK = "_abs"
HOW_TO_GET_LONGMEMEVAL = "its authors keep the files on the Hugging Face hub (xiaowu0162/longmemeval-cleaned)"
_NUMBERS = {name: number for number, name in TYPE_NAMES.items()}


class _Turn(Record):
    role: Literal["user", "assistant"]
    content: Text
    has_answer: bool = False


class _Item(Record):
    question_id: NonBlank
    question_type: NonBlank
    question: NonBlank
    answer: Annotated[NonBlank, BeforeValidator(number_as_text)]
    question_date: Date | None = None
    haystack_dates: list[Date]
    haystack_session_ids: list[NonBlank]
    haystack_sessions: list[list[_Turn]]
    answer_session_ids: list[NonBlank] = Field(default_factory=list)


def load_longmemeval(path: str | Path) -> tuple[Conversation, ...]:
    """Read a file of the benchmark, or another in its layout.

    Evidence are the turns marked ``has_answer``. A history that lacks a session named in ``answer_session_ids`` leaves the
    question without known evidence.

    Returns:
        One conversation with one question for each item, in file order, both under the item's ``question_id``.

    Raises:
        UserError: no such file, or a malformed item.
    """
    path = Path(path)
    items = parse_json(read_text(path), path.name)
    if not isinstance(items, list):
        raise UserError(f"{path.name}: must be a JSON list of questions as in LongMemEval, got {shown(items)}")
    if not items:
        raise UserError(f"{path.name}: holds no conversation")
    conversations = tuple(
        _conversation(checked(_Item, item, f"{path.name}: [{number}]"), f"{path.name}: [{number}]")
        for number, item in enumerate(items)
    )
    unique(
        ((one.id, f"{path.name}: [{number}].question_id") for number, one in enumerate(conversations)), "question_id"
    )
    return conversations


def _conversation(item: _Item, where: str) -> Conversation:
    if item.question_type not in _NUMBERS:
        raise UserError(
            f"{where}.question_type: must be one of {', '.join(_NUMBERS)}, got {shown(item.question_type)}"
        )
    counts = {
        name: len(getattr(item, name)) for name in ("haystack_sessions", "haystack_dates", "haystack_session_ids")
    }
    if len(set(counts.values())) > 1:
        raise UserError(f"{where}: {', '.join(f'{n} {name}' for name, n in counts.items())}; each session needs one")
    histories = zip(item.haystack_dates, item.haystack_sessions, strict=True)
    dated = sorted(((date, turns) for date, turns in histories if turns), key=lambda one: one[0])
    if not dated:
        raise UserError(f"{where}.haystack_sessions: must hold a session with at least one turn")
    sessions = tuple(
        Session(
            index,
            date,
            tuple(Turn(f"S{index}:{number}", turn.role, turn.content) for number, turn in enumerate(turns)),
        )
        for index, (date, turns) in enumerate(dated)
    )
    evidence = tuple(
        f"S{index}:{number}"
        for index, (_, turns) in enumerate(dated)
        for number, turn in enumerate(turns)
        if turn.has_answer
    )
    where_from = {index for index, (_, turns) in enumerate(dated) if any(turn.has_answer for turn in turns)}
    question = Question(
        conversation_id=item.question_id,
        index=0,
        text=item.question,
        answer=item.answer,
        category=_NUMBERS[item.question_type],
        is_trap=ABSTENTION_MARK in item.question_id,
        evidence=evidence,
        evidence_status=_status(evidence, item.answer_session_ids, item.haystack_session_ids),
        id=item.question_id,
        date=item.question_date,
        session=where_from.pop() if len(where_from) == 1 else None,
    )
    return Conversation(item.question_id, sessions, (question,), ("user", "assistant"))


def _status(evidence: Sequence[str], named: Sequence[str], known: Sequence[str]) -> EvidenceStatus:
    """Whether all sessions that are said to hold the answer are there."""
    if set(named) - set(known):
        return "partly_unresolved" if evidence else "unresolved"
    return "ok" if evidence else "none"
