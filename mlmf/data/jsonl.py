"""The package's own format, for people's own conversations: JSON Lines, one conversation a line, UTF-8.

Spread over several lines here, a conversation reads::

    {"id": "anna-and-ben",
     "sessions": [
       {"date": "2023-05-08T13:56",
        "turns": [{"speaker": "Anna", "text": "I adopted a cat!", "id": "t1", "caption": "a grey kitten"},
                  {"speaker": "Ben", "text": "What is it called?"}]}],
     "questions": [
       {"question": "What did Anna adopt?", "answer": "a cat", "evidence": ["t1"], "category": 4},
       {"question": "What is Ben's dog called?", "answer": null, "trap": true, "lure": "Rex"}]}

* ``id``: unique in the file.
* ``sessions``: at least one, in time order, each with at least one turn. ``date`` may be null or left out; the forms
  that are read are those of :func:`mlmf.data.dates.parse_date`.
* a turn needs ``speaker`` and ``text``; ``caption`` says what a picture sent with it shows; ``id`` is unique in the
  conversation and otherwise ``S<session>:<turn>``, both from 0.
* ``questions`` may be left out. ``answer`` is null only where ``trap`` is true: nothing in the conversation answers it.
  Optional: ``evidence`` (turn ids that hold the answer), ``session`` (0-based, where the answer is), ``category`` (an
  integer to group results by), ``lure`` (a tempting wrong answer), ``date`` (when it is asked), ``id``.

Any other key is refused, so that a misspelt one does not pass unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from mlmf.data.reading import Date, ExactRecord, NonBlank, Text, checked, in_order, json_lines, read_text, unique
from mlmf.errors import UserError
from mlmf.paths import atomic_write_text
from mlmf.types import Conversation, Question, Session, Turn

HINT = "`python -m pydoc mlmf.data.jsonl` describes the format"


class _Turn(ExactRecord):
    speaker: NonBlank
    text: Text
    id: NonBlank | None = None
    caption: NonBlank | None = None


class _Session(ExactRecord):
    turns: list[_Turn]
    date: Date | None = None


class _Question(ExactRecord):
    question: NonBlank
    answer: NonBlank | None
    trap: bool = False
    category: int | None = None
    evidence: list[str] = Field(default_factory=list)
    session: int | None = None
    lure: Text | None = None
    date: Date | None = None
    id: NonBlank | None = None


class _Conversation(ExactRecord):
    id: NonBlank
    sessions: list[_Session]
    questions: list[_Question] = Field(default_factory=list)


def load_jsonl(path: str | Path) -> tuple[Conversation, ...]:
    """Read and validate a file in the format above.

    Raises:
        UserError: the first fault, as ``file:line: sessions[2].turns[0].text: ...``.
    """
    path = Path(path)
    lines = list(json_lines(read_text(path), path.name))
    if not lines:
        raise UserError(f"{path}: holds no conversation. {HINT}")
    conversations = tuple(
        _conversation(checked(_Conversation, value, where, hint=HINT), where) for where, value in lines
    )
    unique(((one.id, f"{where}: id") for one, (where, _) in zip(conversations, lines, strict=True)), "conversation id")
    return conversations


def _conversation(record: _Conversation, where: str) -> Conversation:
    if not record.sessions:
        raise UserError(f"{where}: sessions: must hold at least one session, got []")
    for index, session in enumerate(record.sessions):
        if not session.turns:
            raise UserError(f"{where}: sessions[{index}].turns: must hold at least one turn, got []")
    in_order((session.date, f"{where}: sessions[{i}].date") for i, session in enumerate(record.sessions))
    sessions = tuple(_session(session, index) for index, session in enumerate(record.sessions))
    unique(
        (
            (turn.id, f"{where}: sessions[{session.index}].turns[{i}].id")
            for session in sessions
            for i, turn in enumerate(session.turns)
        ),
        "turn id",
    )
    session_of = {turn.id: session.index for session in sessions for turn in session.turns}
    questions = tuple(
        _question(question, index, record.id, session_of, len(sessions), f"{where}: questions[{index}]")
        for index, question in enumerate(record.questions)
    )
    unique(((question.id, f"{where}: questions[{question.index}].id") for question in questions), "question id")
    speakers = tuple(dict.fromkeys(turn.speaker for session in sessions for turn in session.turns))
    return Conversation(record.id, sessions, questions, speakers)


def _session(record: _Session, index: int) -> Session:
    turns = (
        Turn(turn.id or f"S{index}:{i}", turn.speaker, turn.text, turn.caption) for i, turn in enumerate(record.turns)
    )
    return Session(index, record.date, tuple(turns))


def _question(
    record: _Question, index: int, conversation_id: str, session_of: dict[str, int], n_sessions: int, where: str
) -> Question:
    if record.answer is None and not record.trap:
        raise UserError(f'{where}.answer: null only where nothing answers the question; say so with "trap": true')
    for turn_id in record.evidence:
        if turn_id not in session_of:
            raise UserError(f"{where}.evidence: no turn of this conversation has the id {turn_id!r}")
    if record.session is not None and not 0 <= record.session < n_sessions:
        raise UserError(f"{where}.session: must be 0 to {n_sessions - 1}, got {record.session}")
    evidence_sessions = {session_of[turn_id] for turn_id in record.evidence}
    only_session = evidence_sessions.pop() if len(evidence_sessions) == 1 else None
    return Question(
        conversation_id=conversation_id,
        index=index,
        text=record.question,
        answer=record.answer,
        category=record.category,
        is_trap=record.trap,
        lure=record.lure,
        evidence=tuple(record.evidence),
        evidence_status="ok" if record.evidence else "none",
        id=record.id or f"{conversation_id}#{index}",
        date=record.date,
        session=only_session if record.session is None else record.session,
    )


def dump_jsonl(conversations: Iterable[Conversation], path: str | Path) -> None:
    """Write conversations in the format above, all or nothing.

    What the format cannot say is lost: ``evidence_status`` other than ok and none, and the order of ``speakers``.
    """
    lines = (json.dumps(_as_json(one), ensure_ascii=False) for one in conversations)
    atomic_write_text(Path(path), "".join(f"{line}\n" for line in lines))


def _as_json(conversation: Conversation) -> dict[str, Any]:
    sessions = [
        {
            **_present(date=session.date and session.date.isoformat()),
            "turns": [
                {"speaker": turn.speaker, "text": turn.text, "id": turn.id, **_present(caption=turn.caption)}
                for turn in session.turns
            ],
        }
        for session in conversation.sessions
    ]
    questions = [
        {
            "question": question.text,
            "answer": question.answer,
            "trap": question.is_trap,
            "evidence": list(question.evidence),
            **_present(
                id=question.id or None,
                category=question.category,
                session=question.session,
                lure=question.lure,
                date=question.date and question.date.isoformat(),
            ),
        }
        for question in conversation.questions
    ]
    return {"id": conversation.id, "sessions": sessions, "questions": questions}


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
