"""What answers cost: tokens, seconds and memory, and their ratios to reading the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlmf.evaluation.samples import Sample
from mlmf.evaluation.statistics import mean


def usage(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the answers cost, over the questions that were answered.

    Returns:
        * per question: ``tokens_read`` and ``tokens_written`` by the answering model, ``tokens_history`` (all that was
          said before), ``history_share`` (mean of read / history, which is the context usage), ``seconds`` (mean, median
          ``p50``, 95th percentile ``p95``; of a batch over the questions in it);
        * ``tokens_per_second``: written tokens over the seconds of answering, reading of the prompt included;
        * ``ingest_seconds``: of observing the sessions, per conversation and per 1,000 tokens;
        * ``memory_bytes``: the most that was in use;
        * ``gates``: mean share of each memory layer;
        * ``cut``: how many questions were asked without the oldest turns, for want of room, and without how many each.
    """
    answered = [sample for sample in samples if sample.status == "ok"]
    seconds = [sample.seconds for sample in answered]
    layers = sorted({layer for sample in answered for layer in sample.gates})
    return {
        "tokens_read": mean(sample.tokens_read for sample in answered)["mean"],
        "tokens_written": mean(sample.tokens_written for sample in answered)["mean"],
        "tokens_history": mean(sample.tokens_history for sample in answered)["mean"],
        "history_share": mean(one.tokens_read / one.tokens_history for one in answered if one.tokens_history)["mean"],
        "seconds": {
            "mean": mean(seconds)["mean"],
            "p50": float(np.percentile(seconds, 50)) if seconds else None,
            "p95": float(np.percentile(seconds, 95)) if seconds else None,
        },
        "tokens_per_second": _ratio(float(sum(sample.tokens_written for sample in answered)), sum(seconds)),
        "ingest_seconds": _ingest(answered),
        "memory_bytes": max((sample.memory_bytes for sample in answered), default=None),
        "gates": {layer: mean(one.gates[layer] for one in answered if layer in one.gates)["mean"] for layer in layers},
        "cut": {
            "questions": sum(one.turns_left_out > 0 for one in answered),
            "turns": mean(one.turns_left_out for one in answered if one.turns_left_out)["mean"],
        },
    }


def ratios(cost: dict[str, Any], full_context: dict[str, Any]) -> dict[str, float | None]:
    """The main costs as multiples of what ``full_context`` took for the same questions in the same run."""
    return {
        "tokens_read": _ratio(cost["tokens_read"], full_context["tokens_read"]),
        "seconds_mean": _ratio(cost["seconds"]["mean"], full_context["seconds"]["mean"]),
        "seconds_p50": _ratio(cost["seconds"]["p50"], full_context["seconds"]["p50"]),
        "tokens_per_second": _ratio(cost["tokens_per_second"], full_context["tokens_per_second"]),
        "memory_bytes": _ratio(cost["memory_bytes"], full_context["memory_bytes"]),
    }


def _ingest(answered: Sequence[Sample]) -> dict[str, float | None]:
    """From the sample of each conversation that was asked last: by then everything before it was observed."""
    last: dict[str, Sample] = {}
    for sample in answered:
        known = last.get(sample.conversation_id)
        if known is None or sample.turns_history >= known.turns_history:
            last[sample.conversation_id] = sample
    total = sum(sample.seconds_ingest for sample in last.values())
    tokens = sum(sample.tokens_history for sample in last.values())
    return {
        "per_conversation": _ratio(total, float(len(last))),
        "per_1000_tokens": _ratio(1000 * total, float(tokens)),
    }


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
