"""Answers beside their gold side: every metric of every question, and ``scores.jsonl``, where they are kept.

Scores are made from ``samples.jsonl`` and the data alone, so another key, judge or threshold asks no system anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlmf.abstention import is_abstention
from mlmf.evaluation.consistency import Claim, ConsistencyJudge, Verdict
from mlmf.evaluation.metrics import has_lure, is_lured, main_metric, measure, rubric
from mlmf.evaluation.samples import Sample
from mlmf.evaluation.statistics import mean
from mlmf.paths import atomic_write_text
from mlmf.types import Conversation, Question

CONTROL_ANSWER = "Not mentioned"


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer, its gold side under one key, and what it scored."""

    sample: Sample
    question: Question
    main: float = 0.0
    """The task's own F1 (on a trap 1 for abstaining, 0 for a claim); 0 where there is no answer."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """By name, the main one included; empty where there is no answer."""
    abstained: bool = False
    """Whether the system says so or its words do."""
    lured: bool = False
    """Whether it is the wrong answer the question names."""
    consistent: bool | None = None
    """The verdict of the judge of consistency; null for traps and where there is no answer."""
    judged: Verdict | None = None
    """The LLM judge's verdict; null for traps, where there is no answer, and without such a judge."""
    recalled_sessions: tuple[str, ...] = ()
    """The sessions of the recalled turns, each at the rank of its first turn."""
    evidence_sessions: tuple[str, ...] = ()
    """The sessions of the turns that hold the answer; none where those are not known."""

    @property
    def is_claim(self) -> bool:
        """Whether something is asserted: neither an abstention nor an empty answer."""
        return not self.abstained and bool((self.sample.prediction or "").strip())

    @property
    def is_answerable(self) -> bool:
        """Whether there is an answer, and a gold one to hold it against."""
        has_gold = not self.question.is_trap and self.question.answer is not None
        return has_gold and self.sample.status == "ok"

    @property
    def known_evidence(self) -> tuple[str, ...]:
        """The turns that hold the answer; none for a trap, or where the data names one that does not exist."""
        # a recall over the resolvable half of the evidence would be a different number
        is_known = not self.question.is_trap and self.question.evidence_status in ("ok", "repaired")
        return self.question.evidence if is_known else ()


def score_samples(
    task: str,
    samples: Sequence[Sample],
    conversations: Sequence[Conversation],
    *,
    judge: ConsistencyJudge,
    llm_judge: ConsistencyJudge | None = None,
    success_threshold: float,
) -> list[Scored]:
    """Put answers beside their questions; an answer whose question the key leaves out is left out.

    Args:
        task: decides the main metric.
        samples: failed ones included.
        conversations: with the questions under the key that counts.
        judge: of the consistency of answers; gives a verdict on each.
        llm_judge: gives the verdicts of column J, if it is wanted.
        success_threshold: see :func:`mlmf.evaluation.metrics.measure`.
    """
    questions = {(one.conversation_id, one.index): one for chat in conversations for one in chat.questions}
    sessions = {
        chat.id: {turn.id: str(session.index) for session in chat.sessions for turn in session.turns}
        for chat in conversations
    }
    pairs = [(sample, questions.get((sample.conversation_id, sample.index))) for sample in samples]
    scored = [_scored(task, sample, question, success_threshold) for sample, question in pairs if question is not None]
    consistent = [None if one is None else one.is_consistent for one in _verdicts(task, scored, judge)]
    judged = _verdicts(task, scored, llm_judge) if llm_judge else [None] * len(scored)
    return [
        _with_sessions(replace(one, consistent=found, judged=verdict), sessions[one.sample.conversation_id])
        for one, found, verdict in zip(scored, consistent, judged, strict=True)
    ]


def _with_sessions(scored: Scored, session_of: Mapping[str, str]) -> Scored:
    recalled, evidence = (
        # a memory may recall what is no turn, such as the date line of a session
        tuple(dict.fromkeys(session_of[turn] for turn in turns if turn in session_of))
        for turns in (scored.sample.recalled, scored.known_evidence)
    )
    return replace(scored, recalled_sessions=recalled, evidence_sessions=evidence)


def _verdicts(task: str, scored: Sequence[Scored], judge: ConsistencyJudge) -> list[Verdict | None]:
    """A verdict for each answer to an answerable question; on a refusal or silence no judge needs to be asked."""
    claims = [
        Claim(one.question.text, one.question.answer or "", one.sample.prediction or "", rubric(task, one.question))
        for one in scored
        if one.is_answerable and one.is_claim
    ]
    found = iter(judge.judge(claims))
    return [
        None if not one.is_answerable else next(found) if one.is_claim else Verdict(is_consistent=False)
        for one in scored
    ]


def _scored(task: str, sample: Sample, question: Question, success_threshold: float) -> Scored:
    if sample.status == "error":
        return Scored(sample, question)
    text = sample.prediction or ""
    abstained = sample.abstained or is_abstention(text)
    metrics = measure(task, text, question, abstained=abstained, success_threshold=success_threshold)
    return Scored(
        sample,
        question,
        metrics[main_metric(task)],
        metrics,
        abstained,
        lured=not abstained and is_lured(text, question),
    )


def always_abstain(samples: Sequence[Sample]) -> list[Sample]:
    """The answers of a system that refuses every question; only which questions they are is taken from ``samples``.

    It earns the whole of LoCoMo's category 5, 22.5 % of the official mean, so no score is read without this row beside it.
    """
    return [
        Sample(
            one.conversation_id,
            one.index,
            one.id,
            one.question,
            one.period,
            one.seed,
            prediction=CONTROL_ANSWER,
            abstained=True,
        )
        for one in samples
    ]


def false_memory(answers: Sequence[Scored]) -> dict[str, Any]:
    """What was claimed about things that never happened, over the traps that were answered.

    Returns:
        ``mean`` (claims / traps), ``n`` traps, ``claims``; and apart ``lure_hits`` among the ``n_lures`` traps that name
        a wrong answer, with ``lure_rate``.
    """
    traps = [one for one in answers if one.question.is_trap and one.sample.status == "ok"]
    lures = [one for one in traps if has_lure(one.question)]
    hits = sum(one.lured for one in lures)
    return {
        **mean(one.is_claim for one in traps),
        "claims": sum(one.is_claim for one in traps),
        "lure_hits": hits,
        "n_lures": len(lures),
        "lure_rate": hits / len(lures) if lures else None,
    }


def over_refusal(answers: Sequence[Scored]) -> dict[str, Any]:
    """Share of the answerable questions that were refused, ``{"mean", "n"}``."""
    return mean(one.abstained for one in answers if not one.question.is_trap and one.sample.status == "ok")


def write_scores(path: Path, by_key: Mapping[str, Sequence[Scored]]) -> None:
    """Write ``scores.jsonl``: a line per key and answer, to be read beside ``samples.jsonl``."""
    rows = [_row(key, one) for key, answers in by_key.items() for one in answers]
    atomic_write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows))


def _row(key: str, one: Scored) -> dict[str, Any]:
    question = one.question
    return {
        "key": key,
        "seed": one.sample.seed,
        "conversation_id": one.sample.conversation_id,
        "index": one.sample.index,
        "period": one.sample.period,
        "id": one.sample.id,
        "status": one.sample.status,
        "gold": question.answer,
        "category": question.category,
        "is_trap": question.is_trap,
        "lure": question.lure,
        "evidence": list(one.known_evidence),
        "abstained": one.abstained,
        "lured": one.lured,
        "consistent": one.consistent,
        "judged": one.judged.is_consistent if one.judged else None,
        "judge_error": one.judged.error if one.judged else None,
        "metrics": dict(one.metrics),
    }
