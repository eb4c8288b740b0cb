"""From samples to numbers: means with their denominators, an interval for the main figure, and what it cost.

Failed questions are left out of every mean; the main figures are also given with failures counted as zero. A mean over
nothing is ``None``, never 0 and never NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from mlmf.data.locomo import CATEGORY_NAMES
from mlmf.evaluation.metrics import exact_match, score_answer
from mlmf.evaluation.samples import Sample

RESAMPLES = 2_000
CONTROL_ANSWER = "Not mentioned"


def aggregate(task: str, samples: Sequence[Sample], *, seed: int) -> dict[str, Any]:
    """Every score of one system on one task.

    Args:
        task: names the categories, and tells whether the official scorer's means apply.
        samples: one per question, failed ones included.
        seed: of the bootstrap.

    Returns:
        ``answerable_f1`` (mean, n, 95 % interval; LoCoMo: micro mean of categories 1 to 4), ``overall_f1`` (traps
        included; LoCoMo: the official micro mean of all), ``macro_f1`` (mean of the answerable categories' means),
        ``categories``, ``exact_match``, ``abstention_on_traps``, ``over_refusal`` (share of answerable questions
        refused), ``evidence_recall`` and ``answer_words``. Each mean is a ``{"mean", "n"}`` pair.
    """
    scored = [sample for sample in samples if sample.status == "ok"]
    answerable = [sample for sample in scored if not sample.is_trap]
    categories = _categories(task, scored)
    macro = [entry["f1"] for entry in categories if not entry["is_trap"]]
    return {
        "answerable_f1": {
            **_mean(_score(sample) for sample in answerable),
            "ci95": _interval(answerable, seed),
            "conversations": len({sample.conversation_id for sample in answerable}),
            "zero_filled": _mean(_score(sample) for sample in samples if not sample.is_trap)["mean"],
        },
        "overall_f1": {
            **_mean(_score(sample) for sample in scored),
            "zero_filled": _mean(_score(sample) for sample in samples)["mean"],
        },
        "macro_f1": _mean(macro),
        "categories": categories,
        "exact_match": _mean(exact_match(sample.prediction or "", sample.gold or "") for sample in answerable),
        "abstention_on_traps": _mean(sample.abstained for sample in scored if sample.is_trap),
        "over_refusal": _mean(sample.abstained for sample in answerable),
        "evidence_recall": _evidence_recall(scored),
        "answer_words": _mean(len((sample.prediction or "").split()) for sample in scored),
    }


def usage(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the answers cost, over the questions that were answered.

    Returns:
        Tokens read and written per question, the share of the conversation so far that was read, and the seconds per
        question (mean, median, 95th percentile), all for answering alone; ``gates`` is the mean share of each memory layer;
        ``cut`` is how many questions were asked without the oldest turns, for want of room, and without how many each.
    """
    scored = [sample for sample in samples if sample.status == "ok"]
    seconds = [sample.seconds for sample in scored]
    layers = sorted({layer for sample in scored for layer in sample.gates})
    return {
        "tokens_read": _mean(sample.tokens_read for sample in scored)["mean"],
        "tokens_written": _mean(sample.tokens_written for sample in scored)["mean"],
        "history_share": _mean(s.tokens_read / s.tokens_history for s in scored if s.tokens_history)["mean"],
        "seconds": {
            "mean": _mean(seconds)["mean"],
            "p50": float(np.percentile(seconds, 50)) if seconds else None,
            "p95": float(np.percentile(seconds, 95)) if seconds else None,
        },
        "gates": {layer: _mean(s.gates[layer] for s in scored if layer in s.gates)["mean"] for layer in layers},
        "cut": {
            "questions": sum(sample.turns_left_out > 0 for sample in scored),
            "turns": _mean(s.turns_left_out for s in scored if s.turns_left_out)["mean"],
        },
    }


def always_abstain(task: str, samples: Sequence[Sample]) -> list[Sample]:
    """The samples of a system that refuses every question.

    It earns the whole of LoCoMo's category 5, 22.5 % of the official mean, so no score is read without this row beside it.
    """
    return [
        replace(
            sample,
            status="ok",
            error=None,
            prediction=CONTROL_ANSWER,
            score=score_answer(
                task,
                CONTROL_ANSWER,
                gold=sample.gold,
                category=sample.category,
                is_trap=sample.is_trap,
                abstained=True,
            ),
            abstained=True,
            recalled=(),
            recalled_lines=(),
            gates={},
            tokens_read=0,
            tokens_written=0,
            seconds=0.0,
        )
        for sample in samples
    ]


def _categories(task: str, scored: Sequence[Sample]) -> list[dict[str, Any]]:
    """One entry per category that occurs: LoCoMo's five, LOCCO's periods, or people's own numbers.

    Outside LoCoMo a trap carries the category of the fact it imitates, and is counted under traps alone.
    """
    official = task == "locomo"
    counted = [s for s in scored if s.category is not None and (official or not s.is_trap)]
    entries = []
    for category in sorted({sample.category for sample in counted if sample.category is not None}):
        members = [sample for sample in counted if sample.category == category]
        mean = _mean(_score(sample) for sample in members)
        entries.append(
            {
                "category": category,
                "name": _category_name(task, category),
                "is_trap": all(sample.is_trap for sample in members),
                "n": mean["n"],
                "f1": mean["mean"],
            }
        )
    return entries


def _category_name(task: str, category: int) -> str:
    if task == "locomo":
        return CATEGORY_NAMES[category]
    return f"period {category}" if task.startswith("locco") else f"category {category}"


def _evidence_recall(scored: Sequence[Sample]) -> dict[str, Any]:
    """Share of the evidence turns among those read, over questions with known evidence; ``k`` is how many were read."""
    known = [sample for sample in scored if sample.evidence and not sample.is_trap]
    shares = [len(set(sample.evidence) & set(sample.recalled)) / len(set(sample.evidence)) for sample in known]
    return {**_mean(shares), "k": _mean(len(sample.recalled) for sample in known)["mean"]}


def _interval(samples: Sequence[Sample], seed: int) -> list[float] | None:
    """95 % percentile interval of the mean score, resampling whole conversations; ``None`` for fewer than two.

    Questions about one conversation stand and fall together, so resampling questions would understate the interval.
    """
    by_conversation: dict[str, list[float]] = {}
    for sample in samples:
        by_conversation.setdefault(sample.conversation_id, []).append(_score(sample))
    if len(by_conversation) < 2:
        return None
    sums = np.array([sum(scores) for scores in by_conversation.values()])
    counts = np.array([float(len(scores)) for scores in by_conversation.values()])

    def ratio(total: np.ndarray, n: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(total.sum(axis=axis) / n.sum(axis=axis))

    result = bootstrap(
        (sums, counts),
        ratio,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = result.confidence_interval
    return [float(low), float(high)]


def _score(sample: Sample) -> float:
    return sample.score or 0.0


def _mean(values: Iterable[float]) -> dict[str, Any]:
    listed = [float(value) for value in values]
    return {"mean": sum(listed) / len(listed) if listed else None, "n": len(listed)}
