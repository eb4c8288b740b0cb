"""Tables that compare: two systems on the same questions, and one system under several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlmf.evaluation.tables import Grid, Results, interval, number, probability, with_sd


def comparison_grid(comparisons: Sequence[Mapping[str, Any]], *, with_task: bool = True) -> Grid:
    """Two systems a row: the difference (second minus first), and how sure it is.

    Args:
        comparisons: as :func:`mlmf.evaluation.compare.compare_runs` gives them.
        with_task: name task and key in every row.
    """
    header = [
        "task", "key", "measure", "first", "second", "F1 first", "F1 second", "difference", "95 % interval",
        "p bootstrap (Holm)", "p t-test (Holm)", "p over seeds", "effect d", "n",
    ]  # fmt: skip
    rows = [
        [
            one["task"], one["key"], one["measure"].removesuffix("_f1"), *one["systems"],
            number(one["first"]), number(one["second"]), f"{one['difference']:+.3f}", interval(one["ci95"]),
            probability(one["p_bootstrap_holm"]), probability(one["p_t_holm"]), probability(one["p_seeds"]),
            number(one["effect_size"]), f"{one['n']:,}",
        ]
        for one in comparisons
    ]  # fmt: skip
    return (header, rows) if with_task else (header[2:], [row[2:] for row in rows])


def short_comparison_grid(comparisons: Sequence[Mapping[str, Any]]) -> Grid:
    """The columns of :func:`comparison_grid` that fit on a terminal of 100 columns, answerable questions alone."""
    header, rows = comparison_grid([one for one in comparisons if one["measure"] == "answerable_f1"])
    kept = [
        header.index(name)
        for name in ("first", "second", "difference", "95 % interval", "p bootstrap (Holm)", "effect d", "n")
    ]
    return [header[position] for position in kept], [[row[position] for position in kept] for row in rows]


def seed_grid(results: Sequence[Results], key: str) -> Grid:
    """Mean and standard deviation over seeds of the systems that were asked under several."""
    is_judged = any(entry["keys"][key]["over_seeds"]["J"]["mean"] is not None for entry in results)
    names = {
        "answerable_f1": "answerable F1", "overall_f1": "F1 with traps", "consistency": "consistency",
        **({"J": "J"} if is_judged else {}),
        "abstention_on_traps": "abstains on traps", "false_memory": "claims on traps", "over_refusal": "wrongly refused",
    }  # fmt: skip
    if any(entry["keys"][key]["retention"] for entry in results):
        names |= {
            "r6": "R6", "mean_retention": "mean retention", "average_forgetting": "average forgetting",
            "backward_transfer": "backward transfer",
        }  # fmt: skip
    rows = []
    for entry in results:
        found = entry["keys"][key]["over_seeds"]
        note = "yes" if found["same_answers"] else "no"
        rows.append(
            [
                entry["system"],
                *(with_sd(found[name]) if name in found else "-" for name in names),
                str(len(entry["seeds"])),
                note,
            ]
        )
    return ["system", *names.values(), "seeds", "same answers"], rows


def short_seed_grid(results: Sequence[Results], key: str) -> Grid:
    """The columns of :func:`seed_grid` that fit on a terminal of 100 columns."""
    header, rows = seed_grid(results, key)
    names = {
        "system", "answerable F1", "J", "abstains on traps", "claims on traps", "wrongly refused", "seeds", "same answers",
    }  # fmt: skip
    kept = [position for position, name in enumerate(header) if name in names]
    return [header[position] for position in kept], [[row[position] for position in kept] for row in rows]
