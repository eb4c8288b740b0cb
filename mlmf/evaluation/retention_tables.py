"""Tables of retention: the triangle A[t, p] of a system, and its figures."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.data.locco import PERIODS
from mlmf.evaluation.tables import Grid, Results, control_scores, interval, number, percent


def retention_grid(results: Sequence[Results], key: str, measure: str = "consistency") -> Grid:
    """The figures of retention by one measure; a ratio stands beside its two numbers."""
    header = [
        "system", "A[1,1]", "A[6,1]", "R6", "95 % interval", "mean retention", "average forgetting", "backward transfer",
        "claims on traps", "wrongly refused",
    ]  # fmt: skip
    rows = []
    for entry in results:
        found = entry["keys"][key]["retention"]
        figures, last = found[measure], found["by_period"][-1]
        r6 = figures["r6"]
        rows.append(
            [
                entry["system"],
                number(r6["denominator"]),
                number(r6["numerator"]),
                number(r6["value"]),
                interval(r6["ci95"]),
                *(
                    number(figures[name]["value"])
                    for name in ("mean_retention", "average_forgetting", "backward_transfer")
                ),
                percent(last["false_memory"]["mean"]),
                percent(last["over_refusal"]["mean"]),
            ]
        )
    # whatever the period, a refusal is never consistent, so every A[t, p] of the control is 0
    nothing = [number(0.0), number(0.0), "-", "-", "-", number(0.0), number(0.0)]
    rows += [
        [name, *nothing, percent(scores["false_memory"]["mean"]), percent(scores["over_refusal"]["mean"])]
        for name, scores in control_scores(results, key)
    ]
    return header, rows


def triangle_grid(entry: Results, key: str) -> Grid:
    """A[t, p] of one system: a row per period t that has ended, a column per period p that is asked about."""
    figures = entry["keys"][key]["retention"]["consistency"]
    header = ["after", *(f"period {p}" for p in range(1, PERIODS + 1))]
    rows = []
    for t, (values, counts) in enumerate(zip(figures["A"], figures["n"], strict=True), start=1):
        cells = [f"{number(value)} (n={n:,})" for value, n in zip(values, counts, strict=True)]
        rows.append([f"period {t}", *cells, *[""] * (PERIODS - t)])
    return header, rows
