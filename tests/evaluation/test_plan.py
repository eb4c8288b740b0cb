"""When questions are asked: nothing of the future, and every question about the past after each period."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest

from mlmf.data.locco import PeriodSplit, period_of
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.plan import ask_after_each_period, ask_once
from mlmf.types import Conversation, Question, Session


def conversation(n_sessions: int, about: list[int]) -> Conversation:
    sessions = tuple(Session(index, None, ()) for index in range(n_sessions))
    questions = tuple(
        Question("c", index, f"Q{index}?", "a", session=session, id=f"c#{index}")
        for index, session in enumerate(about)
    )
    return Conversation("c", sessions, questions)


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ("balanced", {28: [5, 5, 4, 5, 5, 4], 32: [6, 5, 5, 6, 5, 5], 24: [4] * 6}),
        ("released", {28: [4, 4, 4, 4, 4, 8], 32: [5, 5, 5, 5, 5, 7], 24: [4] * 6}),
    ],
)
def test_periods_have_the_sizes_of_their_split(split: PeriodSplit, sizes: dict[int, list[int]]) -> None:
    for count, expected in sizes.items():
        found = Counter(period_of(session, count, split) for session in range(count))
        assert [found[period] for period in range(1, 7)] == expected


def test_each_period_asks_about_itself_and_all_before_it() -> None:
    asks = ask_after_each_period("released")(conversation(28, [0, 3, 4, 27]))
    by_period: dict[int | None, list[int]] = {}
    for ask in asks:
        by_period.setdefault(ask.period, []).append(ask.question.index)
        assert ask.after == [4, 8, 12, 16, 20, 28][(ask.period or 0) - 1]
        assert ask.question.session is not None
        assert ask.question.session < ask.after
    assert by_period == {1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2], 4: [0, 1, 2], 5: [0, 1, 2], 6: [0, 1, 2, 3]}


def test_the_packaged_probes_of_a_period_agree_with_the_balanced_split() -> None:
    for user in load_task("locco").conversations:
        for ask in ask_after_each_period("balanced")(user):
            assert ask.question.category is not None
            assert ask.period is not None
            assert ask.question.category <= ask.period


def test_what_belongs_to_no_period_is_refused() -> None:
    plan = ask_after_each_period("balanced")
    with pytest.raises(UserError, match="conversation c has 5 sessions, and six periods need at least one each"):
        plan(conversation(5, [0]))
    good = conversation(6, [0])
    lost = replace(good, questions=(replace(good.questions[0], session=None),))
    with pytest.raises(UserError, match="question c#0 does not name the session it is about"):
        plan(lost)
    dated = replace(good, questions=(replace(good.questions[0], date=datetime(2023, 5, 8)),))
    with pytest.raises(UserError, match="question c#0 has a date"):
        plan(dated)


def test_otherwise_every_question_is_asked_once_at_the_end() -> None:
    assert [(ask.question.index, ask.after, ask.period) for ask in ask_once(conversation(3, [0, 2]))] == [
        (0, 3, None), (1, 3, None),
    ]  # fmt: skip
