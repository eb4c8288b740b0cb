"""``report.html``: tables that sort, plots, and every question with its answers, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlmf.evaluation.plots import Answers, Plots, embedded_svg
from mlmf.evaluation.report import first_line, tables, warnings
from mlmf.evaluation.tables import Results

TEMPLATES = Path(__file__).parent / "templates"


def html_report(
    results: Sequence[Results], answers: Answers, comparisons: Sequence[Mapping[str, Any]], plots: Plots
) -> str:
    """The text of ``report.html``.

    Args:
        results: contents of results files, at least one.
        answers: by task and system, as :func:`mlmf.evaluation.folder.read_answers` gives them.
        comparisons: as :func:`mlmf.evaluation.compare.compare_runs` gives them.
        plots: as :func:`mlmf.evaluation.plots.draw_plots` gives them.
    """
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        heading=first_line(results).removeprefix("# "),
        warnings=warnings(results),
        tables=tables(results, comparisons),
        plots=[(name.replace("-", ", "), embedded_svg(name, figure)) for name, figure in plots.items()],
        data=browser_data(answers),
    )


def browser_data(answers: Answers) -> dict[str, Any]:
    """What the question browser reads: ``lines``, each recalled line once, and ``rows``, which point to them by number."""
    numbers: dict[str, int] = {}
    rows = []
    for (task, system), members in answers.items():
        for one in members:
            evidence = set(one["evidence"])
            rows.append(
                {
                    "task": task,
                    "system": system,
                    "key": one["key"],
                    "seed": one["seed"],
                    "period": one["period"],
                    "id": one["id"],
                    "category": one["category"],
                    "trap": one["is_trap"],
                    "question": one["question"],
                    "gold": one["gold"],
                    "answer": one["prediction"],
                    "error": one["error"],
                    "abstained": one["abstained"],
                    "right": is_right(one),
                    "evidence": one["evidence"],
                    "found": len(evidence.intersection(one["recalled"])),
                    "metrics": {name: round(value, 3) for name, value in one["metrics"].items()},
                    "consistent": one["consistent"],
                    "judged": one["judged"],
                    # a line is evidence where the turn of the same rank is
                    "lines": [
                        [numbers.setdefault(line, len(numbers)), turn in evidence]
                        for turn, line in zip(one["recalled"], one["recalled_lines"], strict=False)
                    ],
                }
            )
    return {"lines": list(numbers), "rows": rows}


def is_right(answer: Mapping[str, Any]) -> bool:
    """A success on an answerable question, an abstention on a trap; a failed question is not right."""
    if answer["status"] != "ok":
        return False
    return bool(answer["abstained"]) if answer["is_trap"] else bool(answer["metrics"].get("success"))
