"""The tables of an evaluation as plain cells: one row per system, one column per measure, the control in the last row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlmf.data.locco import PERIODS
from mlmf.evaluation.metrics import LEXICAL

CONTROL = "always abstain"
Results = Mapping[str, Any]
Grid = tuple[list[str], list[list[str]]]


def main_grid(results: Sequence[Results], key: str) -> Grid:
    """The measures of the systems on one task under one key, then the row of the always-abstain control.

    The columns of J are there where an LLM judge was asked.
    """
    control = results[0]["keys"][key]["controls"]["always_abstain"]
    tables = [*(entry["keys"][key]["scores"] for entry in results), control]
    is_judged = any(scores["answerable"]["J"] for scores in tables)
    header = [
        "system", "answerable F1", "95 % interval", *(["J", "n judged", "no verdict"] if is_judged else []),
        "F1 with traps", "abstains on traps", "wrongly refused", "claims on traps", "trap answers", "evidence recall", "tokens read", "history read", "seconds each", "n", "failed",
    ]  # fmt: skip
    rows = [
        [entry["system"], *_scores(scores, is_judged), *_costs(entry, key)]
        for entry, scores in zip(results, tables[:-1], strict=True)
    ]
    rows.append([CONTROL, *_scores(control, is_judged)[:-1], "-", "0", "0.0 %", "-", "-", "-"])
    return header, rows


def short_grid(results: Sequence[Results], key: str) -> Grid:
    """The columns of :func:`main_grid` that fit beside each other on a terminal of 80 columns."""
    header, rows = main_grid(results, key)
    names = [
        "system", "answerable F1", "95 % interval", "J", "abstains on traps", "wrongly refused", "tokens read",
        "seconds each", "n",
    ]  # fmt: skip
    kept = [header.index(name) for name in names if name in header]
    # the title above the table says that F1 is over the answerable questions
    short = [header[number].removeprefix("answerable ") for number in kept]
    return short, [[row[number] for number in kept] for row in rows]


def category_grid(results: Sequence[Results], key: str) -> Grid:
    """F1 by category, the data's own number beside the name, since its names are often mixed up."""
    tables = [(entry["system"], entry["keys"][key]["scores"]) for entry in results]
    tables.append((CONTROL, results[0]["keys"][key]["controls"]["always_abstain"]))
    named = {
        category["category"]: f"{_label(category)} (n={category['n']:,})"
        for _, scores in reversed(tables[:-1])
        for category in scores["categories"]
    }
    rows = []
    for system, scores in tables:
        means = {category["category"]: category["f1"] for category in scores["categories"]}
        cells = [number(means.get(category)) for category in sorted(named)]
        rows.append([system, *cells, number(scores["macro_f1"]["mean"])])
    return ["system", *(named[category] for category in sorted(named)), "macro"], rows


def metric_grid(results: Sequence[Results], key: str) -> Grid:
    """Every metric over the answerable questions; each is another quantity, so none is compared across columns."""
    names = [*LEXICAL, "consistency"]
    main = results[0]["keys"][key]["scores"]["metric"]
    tables = [(entry["system"], entry["keys"][key]["scores"]) for entry in results]
    tables.append((CONTROL, results[0]["keys"][key]["controls"]["always_abstain"]))
    rows = [
        [
            system,
            number(scores["answerable_f1"]["mean"]),
            *(number(scores["answerable"][name]["mean"]) for name in names),
            number(scores["answer_words"]["mean"]),
            f"{scores['answerable_f1']['n']:,}",
        ]
        for system, scores in tables
    ]
    return ["system", main, *names, "words", "n"], rows


def evidence_grid(results: Sequence[Results], key: str) -> Grid:
    """How well the turns that hold the answer were found, and what share of all turns was read for it."""
    found = [(entry["system"], entry["keys"][key]["scores"]["evidence"]) for entry in results]
    cutoffs = list(found[0][1]["recall_at"])
    header = [
        "system",
        *(f"recall@{k}" for k in cutoffs),
        "MRR",
        f"NDCG@{cutoffs[-1]}",
        "turns",
        "of all",
        "n",
        "without",
    ]
    rows = [
        [
            system,
            *(number(scores["recall_at"][k]) for k in cutoffs),
            number(scores["mrr"]),
            number(scores["ndcg_at"][cutoffs[-1]]),
            "-" if scores["turns"] is None else f"{scores['turns']:.1f}",
            percent(scores["corpus_share"]),
            f"{scores['n']:,}",
            f"{scores['n_without']:,}",
        ]
        for system, scores in found
    ]
    return header, rows


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


def comparison_grid(comparisons: Sequence[Mapping[str, Any]]) -> Grid:
    """Two systems a row: the difference (second minus first), and how sure it is."""
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
    return header, rows


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
    rows = []
    for entry in results:
        found = entry["keys"][key]["over_seeds"]
        note = "yes" if found["same_answers"] else "no"
        rows.append([entry["system"], *(_with_sd(found[name]) for name in names), str(len(entry["seeds"])), note])
    return ["system", *names.values(), "seeds", "same answers"], rows


def markdown_grid(grid: Grid) -> str:
    """A table as Markdown."""
    header, rows = grid
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _with_sd(figure: Mapping[str, Any]) -> str:
    return number(figure["mean"]) + (f" ± {figure['sd']:.3f}" if figure["sd"] is not None else "")


def title(entry: Results, key: str) -> str:
    """Task, key and the denominators of a table."""
    scores = entry["keys"][key]["scores"]
    answerable, traps = scores["answerable_f1"], scores["abstention_on_traps"]
    audit = entry["keys"][key]["audit"]
    name = entry["task"]
    if audit is not None:
        name += (
            f", audited key ({audit['excluded_questions']:,} questions left out, {audit['replaced_answers']:,} answers and "
            f"evidence of {audit['replaced_evidence']:,} replaced)"
        )
    return (
        f"{name}: {answerable['n']:,} answerable questions, {traps['n']:,} traps, "
        f"{answerable['conversations']:,} conversation{'' if answerable['conversations'] == 1 else 's'}"
    )


def number(value: float | None) -> str:
    """Three decimals, or a dash where there is no number."""
    return "-" if value is None else f"{value:.3f}"


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def probability(value: float | None) -> str:
    """A p-value with three decimals, and no zero where it is only small."""
    return "< 0.001" if value is not None and value < 0.001 else number(value)


def interval(ends: Sequence[float] | None) -> str:
    """Both ends with two decimals, or a dash."""
    return f"{ends[0]:.2f}..{ends[1]:.2f}" if ends else "-"


def _label(category: Mapping[str, Any]) -> str:
    digits, name = str(category["category"]), str(category["name"])
    return name if name.endswith(digits) else f"{digits} {name}"


def _scores(scores: Mapping[str, Any], is_judged: bool) -> list[str]:
    found, claims = scores["evidence"], scores["false_memory"]
    verdicts = scores["answerable"]["J"]
    judged = [number(verdicts["mean"]), f"{verdicts['n']:,}", f"{verdicts['failed']:,}"] if verdicts else ["-"] * 3
    return [
        number(scores["answerable_f1"]["mean"]),
        interval(scores["answerable_f1"]["ci95"]),
        *(judged if is_judged else []),
        number(scores["overall_f1"]["mean"]),
        percent(scores["abstention_on_traps"]["mean"]),
        percent(scores["over_refusal"]["mean"]),
        percent(claims["mean"]),
        percent(claims["lure_rate"]),
        f"{found['recall']:.3f} @ {found['turns']:.0f}" if found["n"] else "-",
    ]


def _costs(entry: Results, key: str) -> list[str]:
    cost = entry["usage"]
    seconds = cost["seconds"]["mean"]
    return [
        "-" if cost["tokens_read"] is None else f"{cost['tokens_read']:,.0f}",
        percent(cost["history_share"]),
        "-" if seconds is None else f"{seconds:.2f}",
        f"{entry['keys'][key]['scores']['overall_f1']['n']:,}",
        f"{entry['n']['failed']:,}",
    ]
