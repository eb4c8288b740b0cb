"""LongMemEval's layout: types, abstention questions, dates, evidence, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mlmf.data.longmemeval import load_longmemeval
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from tests.data.longmemeval_items import items, save


def test_every_question_has_a_history_of_its_own(tmp_path: Path) -> None:
    conversations = load_longmemeval(save(tmp_path / "s.json"))
    assert [one.id for one in conversations] == ["q-user", "q-update", "q-count", "q-user_abs"]
    first = conversations[0]
    assert [session.date for session in first.sessions] == [
        datetime(2023, 5, 20, 2, 21), datetime(2023, 5, 21, 10), datetime(2023, 5, 22, 9),
    ]  # fmt: skip
    # the same filler session twice, and every turn still has an id of its own
    assert len({turn.id for turn in first.turns}) == 6
    (question,) = first.questions
    assert (question.text, question.answer, question.date) == (
        "What colour was the bike I bought?", "green", datetime(2023, 5, 30, 23, 40),
    )  # fmt: skip
    assert (question.category, question.evidence, question.session) == (1, ("S1:0",), 1)
    assert [turn.speaker for turn in first.sessions[1].turns] == ["user", "assistant"]


def test_sessions_are_put_in_the_order_of_time_and_evidence_follows_them(tmp_path: Path) -> None:
    update = load_longmemeval(save(tmp_path / "s.json"))[1]
    assert [session.turns[0].text for session in update.sessions] == [
        "I bought a green bike today.", "The green bike is sold, I ride a red one now.",
    ]  # fmt: skip
    assert (update.questions[0].evidence, update.questions[0].session) == (("S0:0", "S1:0"), None)


def test_numbers_traps_and_missing_sessions(tmp_path: Path) -> None:
    *_, count, trap = [one.questions[0] for one in load_longmemeval(save(tmp_path / "s.json"))]
    assert (count.answer, count.evidence_status) == ("2", "partly_unresolved")
    assert (trap.is_trap, trap.category, trap.answer) == (True, 1, "You did not mention a car.")


def changed(number: int, **changes: Any) -> list[dict[str, Any]]:
    content = items()
    content[number].update(changes)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: {"a": 1}, r"s\.json: must be a JSON list of questions"),
        (lambda: [], r"s\.json: holds no conversation"),
        (lambda: changed(0, answer=" "), r"\[0\]: answer: must not be empty, got ' '"),
        (
            lambda: changed(1, question_type="single-hop"),
            r"\[1\]\.question_type: must be one of .*, got \"single-hop\"",
        ),
        (lambda: changed(0, haystack_dates=[]), r"\[0\]: 3 haystack_sessions, 0 haystack_dates"),
        (lambda: changed(0, haystack_sessions=[[], [], []]), r"\[0\]\.haystack_sessions: must hold a session"),
        (lambda: changed(2, question_date="last week"), r"\[2\]: question_date: 'last week' is not a date"),
        (lambda: changed(2, question_id="q-user"), r"\[2\]\.question_id: question_id 'q-user' is already used"),
        (lambda: changed(3, haystack_sessions=[[{"role": "bot", "content": "x"}]]), r"\[3\]: haystack_sessions\[0\]"),
    ],
)
def test_a_malformed_file_is_refused(content: Callable[[], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_longmemeval(save(tmp_path / "s.json", content()))


def test_the_task_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="task 'longmemeval' needs one; its authors keep the files on the Hugging Face"
    ):
        load_task("longmemeval")
    data = load_task("longmemeval", data_file=save(tmp_path / "mine.json"))
    assert (len(data.conversations), data.source, data.is_pinned) == (4, "mine.json", False)
