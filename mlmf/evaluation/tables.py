"""The tables of an evaluation as plain cells: one row per system, one column per measure, the control in the last row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlmf.evaluation.metrics import LEXICAL
from mlmf.evaluation.statistics import mean

CONTROL = "always abstain"
Results = Mapping[str, Any]
Grid = tuple[list[str], list[list[str]]]


def main_grid(results: Sequence[Results], key: str) -> Grid:
    """The measures of the systems on one task under one key, then the row of the always-abstain control.

    The columns of J are there where an LLM judge was asked.
    """
    control = control_scores(results, key)
    is_judged = any(entry["keys"][key]["scores"]["answerable"]["J"] for entry in results)
    header = [
        "system", "answerable F1", "95 % interval", *(["J", "n judged", "no verdict"] if is_judged else []),
        "F1 with traps", "abstains on traps", "wrongly refused", "claims on traps", "trap answers", "evidence recall",
        "tokens read", "history read", "seconds each", "n", "failed",
    ]  # fmt: skip
    rows = [
        [entry["system"], *_scores(entry["keys"][key]["scores"], is_judged), *_costs(entry, key)] for entry in results
    ]
    rows += [[name, *_scores(scores, is_judged)[:-1], "-", "0", "0.0 %", "-", "-", "-"] for name, scores in control]
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
    named = {
        category["category"]: f"{category_label(category)} (n={category['n']:,})"
        for _, scores in reversed(tables)
        for category in scores["categories"]
    }
    rows = []
    for system, scores in [*tables, *control_scores(results, key)]:
        means = {category["category"]: category["f1"] for category in scores["categories"]}
        cells = [number(means.get(category)) for category in sorted(named)]
        rows.append([system, *cells, number(scores["macro_f1"]["mean"])])
    return ["system", *(named[category] for category in sorted(named)), "macro"], rows


def judged_category_grid(results: Sequence[Results], key: str) -> Grid:
    """J by answerable category, with the mean of the categories: LongMemEval's accuracy by type and its task average."""
    named = {
        category["category"]: category_label(category)
        for entry in results
        for category in entry["keys"][key]["scores"]["categories"]
        if not category["is_trap"]
    }
    rows = []
    for entry in results:
        judged = {
            category["category"]: found
            for category in entry["keys"][key]["scores"]["categories"]
            if category["metrics"] and (found := category["metrics"]["J"])
        }
        cells = [
            f"{number(judged[one]['mean'])} (n={judged[one]['n']:,})" if one in judged else "-"
            for one in sorted(named)
        ]
        means = [one["mean"] for one in judged.values() if one["mean"] is not None]
        rows.append([entry["system"], *cells, number(mean(means)["mean"])])
    return ["system", *(named[category] for category in sorted(named)), "macro"], rows


def metric_grid(results: Sequence[Results], key: str) -> Grid:
    """Every metric over the answerable questions; each is another quantity, so none is compared across columns."""
    names = [*LEXICAL, "consistency"]
    main = results[0]["keys"][key]["scores"]["metric"]
    tables = [(entry["system"], entry["keys"][key]["scores"]) for entry in results]
    tables += control_scores(results, key)
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


def markdown_grid(grid: Grid) -> str:
    """A table as Markdown."""
    header, rows = grid
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def with_sd(figure: Mapping[str, Any]) -> str:
    """A mean over seeds with its standard deviation, where there are several."""
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


def control_scores(results: Sequence[Results], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The row that every table of scores ends with, unless the system itself was asked and has a row."""
    if any(entry["system"] == "always_abstain" for entry in results):
        return []
    return [(CONTROL, results[0]["keys"][key]["controls"]["always_abstain"])]


def category_label(category: Mapping[str, Any]) -> str:
    """The data's own number of a category before its name."""
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
