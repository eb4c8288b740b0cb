"""Tables of costs: what answering took, and each figure as a multiple of reading the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.evaluation.tables import Grid, Results, percent

_RATIOS = {
    "tokens_read": "tokens read", "tokens_written": "tokens written", "history_share": "history read",
    "seconds_mean": "seconds each", "seconds_p50": "p50", "seconds_p95": "p95",
    "decode_tokens_per_second": "decoding tokens/s", "ingest_seconds_per_conversation": "observing",
    "minutes_per_1000_questions": "minutes per 1,000 questions", "memory_bytes": "memory",
}  # fmt: skip


def cost_grid(results: Sequence[Results]) -> Grid:
    """What the answers of each system cost, per question where nothing else is said."""
    header = [
        "system", "tokens read", "tokens written", "history read", "seconds each", "p50", "p95", "decoding tokens/s",
        "observing, seconds per conversation", "minutes per 1,000 questions", "memory, MB",
    ]  # fmt: skip
    rows = []
    for entry in results:
        cost = entry["usage"]
        memory = cost["memory_bytes"]
        rows.append(
            [
                entry["system"],
                _figure(cost["tokens_read"], 0),
                _figure(cost["tokens_written"], 1),
                percent(cost["history_share"]),
                *(_figure(cost["seconds"][name], 2) for name in ("mean", "p50", "p95")),
                _figure(cost["decode_tokens_per_second"], 1),
                _figure(cost["ingest_seconds"]["per_conversation"], 2),
                _figure(cost["minutes_per_1000_questions"], 1),
                _figure(None if memory is None else memory / 1e6, 0),
            ]
        )
    return header, rows


def ratio_grid(results: Sequence[Results]) -> Grid:
    """The costs of the systems that were asked in one run with full_context, as multiples of what it took."""
    rows = [
        [entry["system"], *(_figure(entry["ratios_to_full_context"][name], 3) for name in _RATIOS)]
        for entry in results
        if entry["ratios_to_full_context"] is not None
    ]
    return ["system", *_RATIOS.values()], rows


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
