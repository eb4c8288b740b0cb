"""Ask one system the questions of one task.

The wall between a system and the gold side runs here: a system is handed :class:`~mlmf.types.Session` and
:class:`~mlmf.types.Query`, in the order of time, and nothing else; only a :class:`~mlmf.systems.base.PrivilegedControl`
is told the evidence as well. A dated question is asked before any session that is later than it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from datetime import time as clock
from functools import partial
from itertools import groupby

from mlmf.abstention import is_abstention
from mlmf.errors import UserError
from mlmf.evaluation.metrics import score_answer
from mlmf.evaluation.samples import Sample, SampleFile
from mlmf.systems.base import PrivilegedControl, System
from mlmf.types import Answer, Conversation, Question, Session, format_line

logger = logging.getLogger(__name__)

KEPT_LINES = 10
"""How many recalled lines a sample keeps, for people to look at."""


@dataclass(frozen=True)
class Runner:
    """How questions are asked and answers kept.

    Args:
        task: decides the metric, see :func:`mlmf.evaluation.metrics.score_answer`.
        batch_size: questions answered together.
        count_tokens: tokens of a text, for the share of the history that was read.
        on_progress: called with the number of questions just finished.
    """

    task: str
    batch_size: int
    count_tokens: Callable[[str], int]
    on_progress: Callable[[int], None] = lambda count: None

    def run(self, system: System, conversations: Sequence[Conversation], file: SampleFile) -> list[Sample]:
        """Ask every question that ``file`` has no answer to yet.

        A batch that raises becomes failed samples with the reason in them, and the run goes on.

        Args:
            system: the memory under test.
            conversations: with the questions to ask.
            file: answers are appended to it batch by batch.

        Returns:
            One sample per question, in the order of the conversations and their questions.

        Raises:
            UserError: the system cannot work with what the user gave it.
        """
        samples = dict(file.finished)
        for conversation in conversations:
            pending = [q for q in conversation.questions if (q.conversation_id, q.index) not in samples]
            self.on_progress(len(conversation.questions) - len(pending))
            for batch in self._ask(system, conversation, pending):
                file.append(batch)
                samples.update((sample.key, sample) for sample in batch)
                self.on_progress(len(batch))
        wanted = (question for conversation in conversations for question in conversation.questions)
        return [samples[question.conversation_id, question.index] for question in wanted]

    def _ask(
        self, system: System, conversation: Conversation, questions: Sequence[Question]
    ) -> Iterator[list[Sample]]:
        """Yield the samples of one conversation, batch by batch, sessions and questions in the order of time."""
        if not questions:
            return

        def due(question: Question) -> int:
            return visible_sessions(conversation.sessions, question.date)

        history = observed = 0
        failure = _attempt(f"{system.name}, conversation {conversation.id}: reset", system.reset)
        for count, group in groupby(sorted(questions, key=due), key=due):
            for session in conversation.sessions[observed:count]:
                history += sum(self.count_tokens(f"{format_line(turn, session.date)}\n") for turn in session.turns)
                # a memory with a hole in it would answer, and its answers would be counted
                if failure is None:
                    what = f"{system.name}, conversation {conversation.id}: observe session {session.index}"
                    failure = _attempt(what, partial(system.observe, session))
            observed = count
            asked = list(group)
            for start in range(0, len(asked), self.batch_size):
                yield self._answer(system, asked[start : start + self.batch_size], history, failure)

    def _answer(
        self,
        system: System,
        questions: Sequence[Question],
        history: int,
        failure: str | None,
    ) -> list[Sample]:
        answers: list[Answer] = []
        started = time.perf_counter()

        def ask() -> None:
            queries = [question.query for question in questions]
            if isinstance(system, PrivilegedControl):
                answers.extend(system.answer_with_gold_evidence(queries, [q.evidence for q in questions]))
            else:
                answers.extend(system.answer(queries))
            if len(answers) != len(questions):
                raise RuntimeError(f"{len(answers)} answers to {len(questions)} questions")

        if failure is None:
            what = f"{system.name}, conversation {questions[0].conversation_id}: answer {len(questions)} questions"
            failure = _attempt(what, ask)
        if failure is not None:
            return [_gold_side(question, history, error=failure) for question in questions]
        seconds = (time.perf_counter() - started) / len(questions)
        return [
            self._sample(_gold_side(question, history), answer, seconds)
            for question, answer in zip(questions, answers, strict=True)
        ]

    def _sample(self, sample: Sample, answer: Answer, seconds: float) -> Sample:
        abstained = answer.abstained or is_abstention(answer.text)
        return replace(
            sample,
            prediction=answer.text,
            score=score_answer(
                self.task,
                answer.text,
                gold=sample.gold,
                category=sample.category,
                is_trap=sample.is_trap,
                abstained=abstained,
            ),
            abstained=abstained,
            recalled=answer.recalled,
            recalled_lines=answer.recalled_lines[:KEPT_LINES],
            gates=answer.gates,
            tokens_read=answer.tokens_read,
            tokens_written=answer.tokens_written,
            seconds=seconds,
            turns_left_out=answer.turns_left_out,
        )


def visible_sessions(sessions: Sequence[Session], date: datetime | None) -> int:
    """How many sessions lie before a question asked at ``date``; all of them for an undated question.

    A date at midnight means the whole day, so a session on the same day counts as before it.
    """
    if date is None:
        return len(sessions)
    end = date + timedelta(days=1) if date.time() == clock.min else date
    later = (position for position, session in enumerate(sessions) if session.date is not None and session.date >= end)
    return next(later, len(sessions))


def _attempt(what: str, call: Callable[[], None]) -> str | None:
    """Why ``call`` failed, ``None`` if it did not. What the user can put right is not a failed question: it is raised."""
    try:
        call()
    except UserError:
        raise
    except Exception as error:
        logger.warning("%s failed; its questions count as errors", what, exc_info=True)
        return f"{what}: {type(error).__name__}: {error}"
    return None


def _gold_side(question: Question, history: int, *, error: str | None = None) -> Sample:
    return Sample(
        conversation_id=question.conversation_id,
        index=question.index,
        id=question.id or f"{question.conversation_id}#{question.index}",
        question=question.text,
        gold=question.answer,
        category=question.category,
        is_trap=question.is_trap,
        # a recall over the resolvable half of the evidence would be a different number
        evidence=question.evidence if question.evidence_status in ("ok", "repaired") else (),
        status="ok" if error is None else "error",
        error=error,
        tokens_history=history,
    )
