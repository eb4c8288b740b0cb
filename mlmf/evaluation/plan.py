"""When each question is asked: once, as late as its date allows, or again and again as the history grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from datetime import time as clock

from mlmf.data.locco import PERIODS, PeriodSplit, period_of
from mlmf.errors import UserError
from mlmf.types import Conversation, Question, Session


@dataclass(frozen=True, slots=True)
class Ask:
    """A question, asked when the first ``after`` sessions of its conversation were observed and no other."""

    question: Question
    after: int
    period: int | None = None
    """The period just ended, 1 to 6, where questions are asked after each of them."""


Planner = Callable[[Conversation], list[Ask]]


def ask_once(conversation: Conversation) -> list[Ask]:
    """Ask every question once: a dated one before any session later than it, an undated one after the last session."""
    return [Ask(one, visible_sessions(conversation.sessions, one.date)) for one in conversation.questions]


def ask_after_each_period(split: PeriodSplit) -> Planner:
    """Ask after each of six periods every question about the periods so far, so that forgetting can be seen.

    Args:
        split: how sessions are divided into periods, see :func:`mlmf.data.locco.period_of`.

    Returns:
        A function from a conversation to its asks. It raises a ``UserError`` for a conversation of fewer than six
        sessions, and for a question that names no session or has a date of its own.
    """

    def plan(conversation: Conversation) -> list[Ask]:
        count = len(conversation.sessions)
        if count < PERIODS:
            raise UserError(
                f"retention: conversation {conversation.id} has {count} sessions, and six periods need at least one "
                "each; leave it out with --conversations, or set retention to null"
            )
        period = {id(one): question_period(one, count, split) for one in conversation.questions}
        ends = [sum(period_of(session, count, split) <= t for session in range(count)) for t in range(1, PERIODS + 1)]
        return [
            Ask(question, end, t)
            for t, end in enumerate(ends, start=1)
            for question in conversation.questions
            if period[id(question)] <= t
        ]

    return plan


def question_period(question: Question, n_sessions: int, split: PeriodSplit) -> int:
    """The period, 1 to 6, of the session a question is about.

    Raises:
        UserError: the question names no session, or has a date of its own and so cannot be asked again later.
    """
    if question.session is None:
        raise UserError(
            f"retention: question {question.id} does not name the session it is about, so it belongs to no period; "
            "use a task whose questions do, such as locco, or set retention to null"
        )
    if question.date is not None:
        raise UserError(
            f"retention: question {question.id} has a date, so it cannot be asked after each period; "
            "set retention to null"
        )
    return period_of(question.session, n_sessions, split)


def visible_sessions(sessions: Sequence[Session], date: datetime | None) -> int:
    """How many sessions lie before a question asked at ``date``; all of them for an undated question.

    A date at midnight means the whole day, so a session on the same day counts as before it.
    """
    if date is None:
        return len(sessions)
    end = date + timedelta(days=1) if date.time() == clock.min else date
    later = (position for position, session in enumerate(sessions) if session.date is not None and session.date >= end)
    return next(later, len(sessions))
