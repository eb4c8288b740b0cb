"""What answers cost: tokens, seconds and memory, and their ratios to reading the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlmf.evaluation.samples import Sample
from mlmf.evaluation.statistics import mean

_COSTS = (
    "tokens_read", "tokens_written", "history_share", "tokens_per_second", "decode_tokens_per_second",
    "minutes_per_1000_questions", "memory_bytes",
)  # fmt: skip


def usage(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the answers cost, over the questions that were answered.

    Returns:
        * per question: ``tokens_read`` and ``tokens_written`` by the answering model, ``tokens_history`` (all that was
          said before), ``history_share`` (mean of read / history, which is the context usage), ``seconds`` (mean, median
          ``p50``, 95th percentile ``p95``; of a batch over the questions in it);
        * ``tokens_per_second``: written tokens over the seconds of answering, reading of the prompt included;
        * ``decode_tokens_per_second``: tokens written after the first of each answer, over the seconds that they took, of
          whole batches; null where that was not measured (a server);
        * ``minutes_per_1000_questions``: of observing and answering together, as long as the run took;
        * ``ingest_seconds``: of observing the sessions, per conversation and per 1,000 tokens;
        * ``memory_bytes``: the most that was in use;
        * ``gates``: mean share of each memory layer;
        * ``cut``: how many questions were asked without some turns, for want of room, without how many each, and what
          share of the history those are.
    """
    answered = [sample for sample in samples if sample.status == "ok"]
    seconds = [sample.seconds for sample in answered]
    timed = [sample for sample in answered if sample.seconds_decoding > 0]
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
        "decode_tokens_per_second": _ratio(
            float(sum(sample.tokens_written - 1 for sample in timed)), sum(sample.seconds_decoding for sample in timed)
        ),
        "ingest_seconds": _ingest(answered),
        "minutes_per_1000_questions": _ratio(
            1000 / 60 * (sum(seconds) + sum(one.seconds_ingest for one in _last_asked(answered))), float(len(answered))
        ),
        "memory_bytes": max((sample.memory_bytes for sample in answered), default=None),
        "gates": {layer: mean(one.gates[layer] for one in answered if layer in one.gates)["mean"] for layer in layers},
        "cut": {
            "questions": sum(one.turns_left_out > 0 for one in answered),
            "turns": mean(one.turns_left_out for one in answered if one.turns_left_out)["mean"],
            "share": mean(one.turns_left_out / one.turns_history for one in answered if one.turns_left_out)["mean"],
        },
    }


def ratios(cost: dict[str, Any], full_context: dict[str, Any]) -> dict[str, float | None]:
    """Each cost as a multiple of what ``full_context`` took for the same questions in the same run."""
    found = {name: _ratio(cost[name], full_context[name]) for name in _COSTS}
    for group in ("seconds", "ingest_seconds"):
        found |= {f"{group}_{name}": _ratio(cost[group][name], full_context[group][name]) for name in cost[group]}
    return found


def _ingest(answered: Sequence[Sample]) -> dict[str, float | None]:
    last = _last_asked(answered)
    total, tokens = (sum(getattr(one, name) for one in last) for name in ("seconds_ingest", "tokens_history"))
    return {
        "per_conversation": _ratio(total, float(len(last))),
        "per_1000_tokens": _ratio(1000 * total, float(tokens)),
    }


def _last_asked(answered: Sequence[Sample]) -> list[Sample]:
    """The sample of each conversation (under each seed) that was asked last: by then everything before it was observed."""
    last: dict[tuple[str, int], Sample] = {}
    for sample in answered:
        known = last.get((sample.conversation_id, sample.seed))
        if known is None or sample.turns_history >= known.turns_history:
            last[sample.conversation_id, sample.seed] = sample
    return list(last.values())


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
