"""LoCoMo (Maharana et al., ACL 2024): ten long dialogues in sessions, 1,986 questions, and other data in its layout.

Categories are the integers of the file under the names of the paper's table 5; other projects permute the names.

Of the released file only dialogue and questions are read: its ``observation``, ``session_summary`` and
``event_summary`` are model-made extracts of the answers, and a turn's ``query`` is the search string behind a picture.
Two category-5 questions (conv-26 #167 and #178) carry the answer "No"; the official scorer still wants an abstention
there, so they stay traps and keep their answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mlmf.data.dates import parse_date
from mlmf.data.reading import NonBlank, Record, Text, checked, in_order, parse_json, read_text, shown, unique
from mlmf.errors import UserError
from mlmf.paths import find_data, sha256_of
from mlmf.types import Conversation, EvidenceStatus, Question, Session, Turn

LOCOMO_SHA256 = "79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4"
LOCOMO_FILE = "locomo/locomo10.json"
HOW_TO_GET_LOCOMO = "run `python -m mlmf.data.fetch locomo`"

CATEGORY_NAMES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = 5
CONTESTED_TRAPS = ("conv-26#161", "conv-26#167", "conv-26#178", "conv-30#95")
"""Questions of category 5 that their conversation answers all the same: what is asked is true (#161), "No" is the answer
(#167 and #178), or the same question stands in category 4 with the answer that would be wrong here (conv-30)."""

_SESSION_KEY = re.compile(r"session_(0|[1-9][0-9]*)")
_EVIDENCE = re.compile(r"D:?\s*(\d+)\s*:\s*(\d+)")


def number_as_text(value: object) -> object:
    """A number as its text, anything else as it is: six gold answers of the release are numbers."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _string_as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Turn(Record):
    speaker: NonBlank
    text: Text
    dia_id: NonBlank | None = None
    blip_caption: Text | None = None


class _Question(Record):
    question: NonBlank
    answer: Annotated[Text | None, BeforeValidator(number_as_text)] = None
    category: int | None = None
    evidence: Annotated[list[str], BeforeValidator(_string_as_list)] = Field(default_factory=list)
    adversarial_answer: Annotated[Text | None, BeforeValidator(number_as_text)] = None


class _Sample(Record):
    conversation: dict[str, Any]
    sample_id: NonBlank | None = None
    qa: list[Any] = Field(default_factory=list)


def load_locomo(
    path: str | Path | None = None, *, captions: bool = True, allow_unknown_data: bool = False
) -> tuple[Conversation, ...]:
    """Read LoCoMo, or another file in its layout.

    Args:
        path: the file; without it the official one is looked for (:func:`mlmf.paths.find_data`).
        captions: keep what shared pictures show as ``Turn.caption``; about 32 questions need it.
        allow_unknown_data: accept a file that is not the official release.

    Returns:
        Conversations in file order, each with its questions at their positions in ``qa``.

    Raises:
        UserError: no file, a file with another sha256 that was not allowed, or a malformed record.
    """
    path = find_data(LOCOMO_FILE, HOW_TO_GET_LOCOMO) if path is None else Path(path)
    text = read_text(path)
    if not allow_unknown_data and (found := sha256_of(path)) != LOCOMO_SHA256:
        raise UserError(
            f"{path}: not the official LoCoMo release: sha256 {found}, expected {LOCOMO_SHA256}. "
            f"To get the release, {HOW_TO_GET_LOCOMO}; to use this file as it is, pass --allow_unknown_data"
        )
    samples = parse_json(text, path.name)
    if not isinstance(samples, list):
        raise UserError(f"{path.name}: must be a JSON list of samples as in LoCoMo, got {shown(samples)}")
    if not samples:
        raise UserError(f"{path.name}: holds no conversation")
    conversations = tuple(
        _conversation(checked(_Sample, sample, f"{path.name}: [{position}]"), position, path.name, captions)
        for position, sample in enumerate(samples)
    )
    unique(
        ((one.id, f"{path.name}: [{position}].sample_id") for position, one in enumerate(conversations)), "sample_id"
    )
    return conversations


def _conversation(sample: _Sample, position: int, file: str, captions: bool) -> Conversation:
    name = sample.sample_id or f"conv-{position}"
    where = f"{file}: {name}"
    sessions = _sessions(sample.conversation, where, captions)
    session_of = {turn.id: session.index for session in sessions for turn in session.turns}
    questions = tuple(
        _question(checked(_Question, item, where, f"qa[{index}]"), index, name, session_of, where)
        for index, item in enumerate(sample.qa)
    )
    named = [sample.conversation.get(key) for key in ("speaker_a", "speaker_b")]
    spoken = [turn.speaker for session in sessions for turn in session.turns]
    speakers = tuple(dict.fromkeys([*(one for one in named if isinstance(one, str)), *spoken]))
    return Conversation(name, sessions, questions, speakers)


def _sessions(conversation: dict[str, Any], where: str, captions: bool) -> tuple[Session, ...]:
    """Sessions in the order of their numbers; dates that have no session (conv-26 has 16) are left aside."""
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION_KEY.fullmatch(key)))
    if not numbers:
        raise UserError(f"{where}: conversation: has no session_1, session_2, ...")
    sessions = tuple(_session(conversation, number, index, where, captions) for index, number in enumerate(numbers))
    keys = [f"{where}: conversation.session_{number}" for number in numbers]
    in_order((session.date, key) for session, key in zip(sessions, keys, strict=True))
    unique(((turn.id, key) for session, key in zip(sessions, keys, strict=True) for turn in session.turns), "dia_id")
    return sessions


def _session(conversation: dict[str, Any], number: int, index: int, where: str, captions: bool) -> Session:
    key = f"session_{number}"
    turns = conversation[key]
    if not isinstance(turns, list) or not turns:
        raise UserError(f"{where}: conversation.{key}: must be a list with at least one turn, got {shown(turns)}")
    records = [checked(_Turn, turn, where, f"conversation.{key}[{i}]") for i, turn in enumerate(turns)]
    raw_date = conversation.get(f"{key}_date_time")
    try:
        date = None if raw_date is None else parse_date(str(raw_date))
    except ValueError as error:
        raise UserError(f"{where}: conversation.{key}_date_time: {error}") from error
    return Session(
        index,
        date,
        tuple(
            Turn(
                turn.dia_id or f"D{number}:{position}",
                turn.speaker,
                turn.text,
                turn.blip_caption if captions else None,
            )
            for position, turn in enumerate(records, start=1)
        ),
    )


def _question(item: _Question, index: int, sample_id: str, session_of: dict[str, int], where: str) -> Question:
    if item.category is not None and item.category not in CATEGORY_NAMES:
        raise UserError(f"{where}: qa[{index}].category: must be 1 to 5, got {item.category}")
    is_trap = item.category == ADVERSARIAL
    if item.answer is None and not is_trap:
        raise UserError(f"{where}: qa[{index}].answer: field missing; only category 5 may leave it out")
    if item.answer is not None and not item.answer.strip():
        raise UserError(f"{where}: qa[{index}].answer: must not be empty, got {item.answer!r}")
    evidence, status = repair_evidence(item.evidence, session_of)
    evidence_sessions = {session_of[turn_id] for turn_id in evidence}
    return Question(
        conversation_id=sample_id,
        index=index,
        text=item.question,
        answer=item.answer,
        category=item.category,
        is_trap=is_trap,
        lure=item.adversarial_answer,
        evidence=evidence,
        evidence_status=status,
        id=f"{sample_id}#{index}",
        session=evidence_sessions.pop() if len(evidence_sessions) == 1 else None,
    )


def repair_evidence(raw: Sequence[str], known: Iterable[str]) -> tuple[tuple[str, ...], EvidenceStatus]:
    """Turn ids that the evidence strings of a question mean.

    The file joins ids in one string (``D8:6; D9:17``), pads them (``D30:05``) and misprints them (``D:11:26``). Every
    ``D<session>:<turn>`` found in a string is taken; repeated ids are collapsed.

    Args:
        raw: strings of the file.
        known: ids of the conversation's turns.

    Returns:
        The ids that exist, in file order, and: ``ok`` (all strings were ids), ``repaired`` (all mean existing turns),
        ``partly_unresolved`` or ``unresolved`` (some or none do), ``none`` (no evidence given).
    """
    if not raw:
        return (), "none"
    turns = set(known)
    if all(text in turns for text in raw):
        return tuple(dict.fromkeys(raw)), "ok"
    found: list[str] = []
    has_unresolved = False
    for text in raw:
        meant = [text] if text in turns else [f"D{int(a)}:{int(b)}" for a, b in _EVIDENCE.findall(text)]
        resolved = [turn_id for turn_id in meant if turn_id in turns]
        has_unresolved |= not meant or len(resolved) < len(meant)
        found += resolved
    status: EvidenceStatus = "repaired"
    if has_unresolved:
        status = "partly_unresolved" if found else "unresolved"
    return tuple(dict.fromkeys(found)), status
