"""Ask one system the questions of one task.

The wall between a system and the gold side runs here: a system is handed :class:`~mlmf.types.Session` and
:class:`~mlmf.types.Query`, in the order of time, and nothing else; only a :class:`~mlmf.systems.base.PrivilegedControl`
is told the evidence as well. When a question is asked is a matter of the plan
(:mod:`mlmf.evaluation.plan`); no session after that moment has been observed by then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from mlmf.errors import UserError
from mlmf.evaluation.plan import Ask, Planner, ask_once
from mlmf.evaluation.samples import Sample, SampleFile
from mlmf.systems.base import PrivilegedControl, System
from mlmf.types import Answer, Conversation, format_line

logger = logging.getLogger(__name__)

KEPT_LINES = 10
"""How many recalled lines a sample keeps, for people to look at."""


@dataclass(frozen=True)
class Runner:
    """How questions are asked and answers kept.

    Args:
        batch_size: questions answered together.
        count_tokens: tokens of a text, for the share of the history that was read.
        plan: when the questions of a conversation are asked.
        on_progress: called with the number of questions just finished.
        memory_bytes: what is noted as :attr:`Sample.memory_bytes` after a batch.
        seed: noted with each answer.
    """

    batch_size: int
    count_tokens: Callable[[str], int]
    plan: Planner = ask_once
    on_progress: Callable[[int], None] = lambda count: None
    memory_bytes: Callable[[], int] = lambda: 0
    seed: int = 0

    def run(self, system: System, conversations: Sequence[Conversation], file: SampleFile) -> list[Sample]:
        """Ask every question that ``file`` has no answer to yet.

        Sessions are observed once, whatever the plan: a question asked six times is asked in six batches on the way.
        A batch that raises becomes failed samples with the reason in them, and the run goes on.

        Args:
            system: the memory under test.
            conversations: with the questions to ask.
            file: answers are appended to it batch by batch.

        Returns:
            One sample per ask, in the order of the conversations and their plans.

        Raises:
            UserError: the system cannot work with what the user gave it, or the plan does not fit a conversation.
        """
        plans = [self.plan(conversation) for conversation in conversations]
        samples = dict(file.finished)
        for conversation, asks in zip(conversations, plans, strict=True):
            pending = [ask for ask in asks if blank_sample(ask).key not in samples]
            self.on_progress(len(asks) - len(pending))
            for batch in self._ask(system, conversation, pending):
                file.append(batch)
                samples.update((sample.key, sample) for sample in batch)
                self.on_progress(len(batch))
        return [samples[blank_sample(ask).key] for asks in plans for ask in asks]

    def _ask(self, system: System, conversation: Conversation, asks: Sequence[Ask]) -> Iterator[list[Sample]]:
        """Yield the samples of one conversation, batch by batch, sessions and questions in the order of time."""
        if not asks:
            return
        tokens = turns = observed = 0
        seconds = 0.0
        failure = _attempt(f"{system.name}, conversation {conversation.id}: reset", system.reset)
        for (after, _), group in groupby(sorted(asks, key=_moment), key=_moment):
            for session in conversation.sessions[observed:after]:
                tokens += sum(self.count_tokens(f"{format_line(turn, session.date)}\n") for turn in session.turns)
                turns += len(session.turns)
                # a memory with a hole in it would answer, and its answers would be counted
                if failure is None:
                    what = f"{system.name}, conversation {conversation.id}: observe session {session.index}"
                    started = time.perf_counter()
                    failure = _attempt(what, partial(system.observe, session))
                    seconds += time.perf_counter() - started
            observed = after
            due = list(group)
            for start in range(0, len(due), self.batch_size):
                batch = self._answer(system, due[start : start + self.batch_size], failure)
                yield [
                    replace(sample, tokens_history=tokens, turns_history=turns, seconds_ingest=seconds, seed=self.seed)
                    for sample in batch
                ]

    def _answer(self, system: System, asks: Sequence[Ask], failure: str | None) -> list[Sample]:
        answers: list[Answer] = []
        started = time.perf_counter()

        def ask() -> None:
            queries = [one.question.query for one in asks]
            if isinstance(system, PrivilegedControl):
                answers.extend(system.answer_with_gold_evidence(queries, [one.question.evidence for one in asks]))
            else:
                answers.extend(system.answer(queries))
            if len(answers) != len(asks):
                raise RuntimeError(f"{len(answers)} answers to {len(asks)} questions")

        if failure is None:
            what = f"{system.name}, conversation {asks[0].question.conversation_id}: answer {len(asks)} questions"
            failure = _attempt(what, ask)
        if failure is not None:
            return [replace(blank_sample(one), status="error", error=failure) for one in asks]
        seconds = (time.perf_counter() - started) / len(asks)
        memory = self.memory_bytes()
        return [
            replace(
                blank_sample(one),
                prediction=answer.text,
                abstained=answer.abstained,
                recalled=answer.recalled,
                recalled_lines=answer.recalled_lines[:KEPT_LINES],
                gates=answer.gates,
                tokens_read=answer.tokens_read,
                tokens_written=answer.tokens_written,
                seconds=seconds,
                seconds_decoding=answer.seconds_decoding,
                turns_left_out=answer.turns_left_out,
                memory_bytes=memory,
            )
            for one, answer in zip(asks, answers, strict=True)
        ]


def blank_sample(ask: Ask) -> Sample:
    """The sample of a question before anything has been answered."""
    question = ask.question
    return Sample(
        question.conversation_id,
        question.index,
        question.id or f"{question.conversation_id}#{question.index}",
        question.text,
        ask.period,
    )


def _moment(ask: Ask) -> tuple[int, int]:
    return ask.after, ask.period or 0


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
