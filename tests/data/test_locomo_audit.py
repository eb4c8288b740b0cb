"""The audited key: exactly the changes the audit asks for, and only where audit and data belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlmf.data.locomo_audit import AUDIT_FILE, HOW_TO_GET_AUDIT, AuditCounts, AuditItem, apply_audit, load_audit
from mlmf.errors import UserError
from mlmf.paths import find_data
from mlmf.types import Conversation, Question, Session, Turn

SESSIONS = tuple(Session(i, None, tuple(Turn(f"D{i + 1}:{j}", "A", "hi") for j in (1, 2))) for i in range(2))
QUESTIONS = tuple(
    Question("conv-1", index, f"Q{index}?", f"old {index}", 4, evidence=("D1:1",), evidence_status="ok", session=0)
    for index in range(4)
)
CONVERSATION = Conversation("conv-1", SESSIONS, QUESTIONS)


def item(index: int, action: str, **changes: Any) -> dict[str, Any]:
    return {
        "sample_id": "conv-1", "question_index": index, "question": f"Q{index}?", "published_answer": f"old {index}",
        "suggested_action": action, "reason": "not read",
    } | changes  # fmt: skip


AUDIT = [
    item(0, "replace_answer", short_corrected_answer="new"),
    item(1, "exclude_question"),
    item(2, "replace_evidence", correct_evidence=["D2:1", "D2:2"]),
    item(7, "exclude_question", sample_id="conv-9"),
]


def read(tmp_path: Path, items: object) -> tuple[AuditItem, ...]:
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(items))
    return load_audit(path)


def test_each_action_changes_its_question_and_nothing_else(tmp_path: Path) -> None:
    (changed,), counts = apply_audit([CONVERSATION], read(tmp_path, AUDIT))
    assert counts == AuditCounts(replaced_answers=1, excluded_questions=1, replaced_evidence=1)
    # a question left out leaves a gap, so that answers still find theirs
    assert [question.index for question in changed.questions] == [0, 2, 3]
    first, third, last = changed.questions
    assert (first.answer, first.evidence) == ("new", ("D1:1",))
    assert (third.answer, third.evidence, third.evidence_status, third.session) == ("old 2", ("D2:1", "D2:2"), "ok", 1)
    assert last == QUESTIONS[3]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([item(0, "exclude_question", question="Other?")], r'conv-1#0: question: .* "Other\?", the data has "Q0\?"'),
        ([item(0, "exclude_question", published_answer=5)], r'published_answer: the audit is about "5", the data has'),
        ([item(0, "replace_evidence", correct_evidence=["D9:9"])], r"D9:9.* names a turn that conv-1 does not have"),
        (
            [item(0, "replace_answer")],
            r"audit\.json: \[0\]\.short_corrected_answer: replace_answer needs one, got null",
        ),
        ([item(0, "replace_evidence")], r"audit\.json: \[0\]\.correct_evidence: replace_evidence needs at least one"),
        ([item(0, "delete")], r"audit\.json: \[0\]: suggested_action: .*\"delete\""),
        ([AUDIT[1], AUDIT[1]], r"audit\.json: \[1\]: question \('conv-1', 1\) is already used"),
        ({"items": []}, r"audit\.json: must be a JSON list"),
    ],
)
def test_an_audit_that_does_not_fit_is_refused(tmp_path: Path, items: object, message: str) -> None:
    questions = tuple(Question("conv-1", q.index, q.text, q.answer, 4, id=f"conv-1#{q.index}") for q in QUESTIONS)
    with pytest.raises(UserError, match=message):
        apply_audit([Conversation("conv-1", SESSIONS, questions)], read(tmp_path, items))


def test_the_public_audit_on_the_published_file(locomo: dict[str, Conversation]) -> None:
    try:
        find_data(AUDIT_FILE, HOW_TO_GET_AUDIT)
    except UserError as error:
        pytest.skip(str(error))
    corrected, counts = apply_audit(list(locomo.values()), load_audit())
    assert counts == AuditCounts(replaced_answers=41, excluded_questions=58, replaced_evidence=57)
    left = [question for conversation in corrected for question in conversation.questions]
    assert len(left) == 1986 - 58
    assert sum(question.is_trap for question in left) == 446
