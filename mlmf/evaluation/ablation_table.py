"""The table of ablations: a variant of the memory a row, and how far it falls behind the full one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlmf.config.variants import variant_of
from mlmf.data.locomo import CATEGORY_NAMES
from mlmf.evaluation.tables import Grid, Results, interval, number, percent, probability, with_sd

MULTI_HOP = next(number for number, name in CATEGORY_NAMES.items() if name == "multi-hop")
COMPARED = (
    "difference of answerable F1 to the full memory on the same questions (interval and p by bootstrap over conversations; "
    "t-test over questions, and over the means of the seeds; both first corrected over the variants by Holm)"
)


def ablation_grid(results: Sequence[Results], ablations: Sequence[Mapping[str, Any]], key: str) -> Grid:
    """Scores of each variant (mean ± standard deviation over seeds), and its paired difference to the full memory.

    Args:
        results: of one task; those that are no variants are passed over.
        ablations: as :func:`mlmf.evaluation.ablations.compare_ablations` gives them.
        key: of the answers.
    """
    variants = [entry for entry in results if variant_of(entry["system"]) is not None]
    task = variants[0]["task"]
    has_retention = variants[0]["keys"][key]["retention"] is not None
    header = [
        "memory", "answerable F1", *(["multi-hop F1"] if task == "locomo" else []), "BLEU-1", "consistent",
        *(["R6"] if has_retention else []), "claims on traps", "wrongly refused", "difference", "95 % interval",
        "p bootstrap (Holm)", "p t-test (Holm)", "p over seeds", "effect d", "traps refused: difference", "n",
    ]  # fmt: skip
    rows = []
    for entry in variants:
        found = entry["keys"][key]
        scores, seeds = found["scores"], found["over_seeds"]
        cells = [str(variant_of(entry["system"])), with_sd(seeds["answerable_f1"])]
        if task == "locomo":
            means = {category["category"]: category["f1"] for category in scores["categories"]}
            cells.append(number(means.get(MULTI_HOP)))
        cells += [number(scores["answerable"][name]["mean"]) for name in ("bleu1", "consistency")]
        if has_retention:
            cells.append(number(found["retention"]["consistency"]["r6"]["value"]))
        cells += [percent(scores["false_memory"]["mean"]), percent(scores["over_refusal"]["mean"])]
        rows.append([*cells, *_tests(entry, ablations, key)])
    return header, rows


def short_ablation_grid(results: Sequence[Results], ablations: Sequence[Mapping[str, Any]], key: str) -> Grid:
    """The columns of :func:`ablation_grid` that fit on a terminal of 100 columns."""
    header, rows = ablation_grid(results, ablations, key)
    names = [
        "memory", "answerable F1", "BLEU-1", "claims on traps", "difference", "95 % interval", "p bootstrap (Holm)",
        "p over seeds", "effect d",
    ]  # fmt: skip
    kept = [header.index(name) for name in names]
    return names, [[row[position] for position in kept] for row in rows]


def _tests(entry: Results, ablations: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """The cells that compare a variant with the full memory; dashes for the full memory itself."""
    by_measure = {
        one["measure"]: one
        for one in ablations
        if (one["task"], one["key"], one["systems"][1]) == (entry["task"], key, entry["system"])
    }
    facts, traps = by_measure.get("answerable_f1"), by_measure.get("traps_f1")
    on_traps = "-" if traps is None else f"{traps['difference']:+.3f}"
    if facts is None:
        return ["-"] * 6 + [on_traps, f"{entry['keys'][key]['scores']['answerable_f1']['n']:,}"]
    return [
        f"{facts['difference']:+.3f}",
        interval(facts["ci95"]),
        probability(facts["p_bootstrap_holm"]),
        probability(facts["p_t_holm"]),
        probability(facts["p_seeds"]),
        number(facts["effect_size"]),
        on_traps,
        f"{facts['n']:,}",
    ]
