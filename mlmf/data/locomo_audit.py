"""The public audit of LoCoMo's answer key, as a second key beside the published one.

The audit (github.com/dial481/locomo-audit, CC BY-NC 4.0) found 156 faults in categories 1 to 4. It is one party's work,
with a language model in it, so it never replaces the published key: both are reported, with the counts of what differs.
Its file never ships. It is a JSON list of items such as::

    {"sample_id": "conv-26", "question_index": 1, "question": "When did ...?", "published_answer": 2022,
     "suggested_action": "replace_evidence", "short_corrected_answer": null, "correct_evidence": ["D1:14"]}

``replace_answer`` puts ``short_corrected_answer`` in place of the gold answer, ``exclude_question`` leaves the question
out, and ``replace_evidence`` puts ``correct_evidence`` in place of the cited turns. Other fields are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from mlmf.data.locomo import number_as_text, repair_evidence
from mlmf.data.reading import NonBlank, Record, Text, checked, parse_json, read_text, shown, unique
from mlmf.errors import UserError
from mlmf.paths import find_data
from mlmf.types import Conversation, Question

AUDIT_FILE = "locomo/audit.json"
_ACTIONS = ("replace_answer", "exclude_question", "replace_evidence")  # the order of AuditCounts
HOW_TO_GET_AUDIT = "build it from github.com/dial481/locomo-audit (`python -m pydoc mlmf.data.locomo_audit`)"


class AuditItem(Record):
    """What the audit says about one question; the module describes the fields."""

    sample_id: NonBlank
    question_index: int
    question: NonBlank
    published_answer: Annotated[Text, BeforeValidator(number_as_text)]
    suggested_action: Literal["replace_answer", "exclude_question", "replace_evidence"]
    short_corrected_answer: NonBlank | None = None
    correct_evidence: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AuditCounts:
    """How many of the questions at hand the audit changed."""

    replaced_answers: int = 0
    excluded_questions: int = 0
    replaced_evidence: int = 0


def load_audit(path: str | Path | None = None) -> tuple[AuditItem, ...]:
    """Read the audit; without a path it is looked for beside LoCoMo (:func:`mlmf.paths.find_data`).

    Raises:
        UserError: no file, a malformed item, or two items about one question.
    """
    path = find_data(AUDIT_FILE, HOW_TO_GET_AUDIT) if path is None else Path(path)
    values = parse_json(read_text(path), path.name)
    if not isinstance(values, list):
        raise UserError(f"{path.name}: must be a JSON list of audited questions, got {shown(values)}")
    if not values:
        raise UserError(f"{path.name}: holds no audited question; leave the audited key out instead")
    items = [checked(AuditItem, value, f"{path.name}: [{number}]") for number, value in enumerate(values)]
    for number, item in enumerate(items):
        where = f"{path.name}: [{number}]"
        if item.suggested_action == "replace_answer" and item.short_corrected_answer is None:
            raise UserError(f"{where}.short_corrected_answer: replace_answer needs one, got null")
        if item.suggested_action == "replace_evidence" and not item.correct_evidence:
            raise UserError(f"{where}.correct_evidence: replace_evidence needs at least one turn id, got []")
    unique(
        (((one.sample_id, one.question_index), f"{path.name}: [{number}]") for number, one in enumerate(items)),
        "question",
    )
    return tuple(items)


def apply_audit(
    conversations: Sequence[Conversation], items: Sequence[AuditItem]
) -> tuple[tuple[Conversation, ...], AuditCounts]:
    """The same conversations under the audited key.

    Questions keep their index, so a question left out leaves a gap. Items about conversations or questions that are not
    here are passed over: an evaluation of two conversations has no use for those about the others.

    Raises:
        UserError: an item is about another question or answer than stands at its place, or names a turn that is not there.
    """
    by_key = {(item.sample_id, item.question_index): item for item in items}
    changed: list[Conversation] = []
    actions: list[str] = []
    for conversation in conversations:
        kept = []
        for question in conversation.questions:
            item = by_key.get((conversation.id, question.index))
            if item is not None:
                _check_match(item, question)
                actions.append(item.suggested_action)
            if item is None or item.suggested_action != "exclude_question":
                kept.append(question if item is None else _corrected(item, question, conversation))
        changed.append(replace(conversation, questions=tuple(kept)))
    counts = AuditCounts(*(actions.count(action) for action in _ACTIONS))
    return tuple(changed), counts


def _check_match(item: AuditItem, question: Question) -> None:
    for name, audited, here in (
        ("question", item.question, question.text),
        ("published_answer", item.published_answer, question.answer),
    ):
        if audited != here:
            raise UserError(
                f"audit: {question.id}: {name}: the audit is about {shown(audited)}, the data has {shown(here)} there; "
                "audit and LoCoMo file do not belong together"
            )


def _corrected(item: AuditItem, question: Question, conversation: Conversation) -> Question:
    if item.suggested_action == "replace_answer":
        return replace(question, answer=item.short_corrected_answer)
    session_of = {turn.id: session.index for session in conversation.sessions for turn in session.turns}
    evidence, status = repair_evidence(item.correct_evidence, session_of)
    if status not in ("ok", "repaired"):
        raise UserError(
            f"audit: {question.id}: correct_evidence: {shown(item.correct_evidence)} names a turn that {conversation.id} "
            "does not have; audit and LoCoMo file do not belong together"
        )
    sessions = {session_of[turn] for turn in evidence}
    return replace(
        question,
        evidence=evidence,
        evidence_status=status,
        session=sessions.pop() if len(sessions) == 1 else None,
    )
