"""``report.html``: tables that sort, plots, and every question with all its answers, in one file that needs no network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlmf.data.locco import PERIODS
from mlmf.evaluation.compare import Comparisons
from mlmf.evaluation.folder import Answers
from mlmf.evaluation.metrics import LEXICAL, main_metric
from mlmf.evaluation.plots import Plots, embedded_svg
from mlmf.evaluation.report import first_line, notes, warnings
from mlmf.evaluation.report_tables import Captioned, by_task, tables
from mlmf.evaluation.tables import Results, category_label

TEMPLATES = Path(__file__).parent / "templates"
FOLDED_FROM = 20
"""Longer tables, such as those of every two of many systems, are shown on demand."""


def html_report(results: Sequence[Results], answers: Answers, comparisons: Comparisons, plots: Plots) -> str:
    """The text of ``report.html``.

    Args:
        results: contents of results files, at least one.
        answers: by task and system, as :func:`mlmf.evaluation.folder.read_answers` gives them.
        comparisons: the paired tests between them.
        plots: as :func:`mlmf.evaluation.plots.draw_plots` gives them.
    """
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        heading=first_line(results).removeprefix("# "),
        warnings=warnings(results),
        parts=_parts(tables(results, comparisons)),
        notes={task: notes(entries) for task, entries in by_task(results).items()},
        folded_from=FOLDED_FROM,
        plots=[(figure.get_suptitle(), embedded_svg(name, figure)) for name, figure in plots.items()],
        data=browser_data(results, answers),
    )


def _parts(found: Sequence[Captioned]) -> dict[str, list[dict[str, Any]]]:
    """The tables of each part, as the template takes them."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for table in found:
        parts.setdefault(table.part, []).append(_table(table))
    return parts


def _table(table: Captioned) -> dict[str, Any]:
    """A table for the template, with which of its columns hold words."""
    from markupsafe import Markup

    header, rows = table.grid
    words = [any(row[column] and not is_figure(row[column]) for row in rows) for column in range(len(header))]
    return {
        "title": table.title,
        "note": table.note,
        "header": header,
        "rows": rows,
        "kinds": [Markup(' class="text"') if column else "" for column in words],
    }


def is_figure(cell: str) -> bool:
    """Whether a cell is a figure (with its interval, spread or n) or the dash that stands for none, and no word."""
    return re.fullmatch(r"[-+<\d][-+\d.,%\u00b1@()n=\s]*", cell) is not None


def browser_data(results: Sequence[Results], answers: Answers) -> dict[str, Any]:
    """What the question browser reads: each question once, with what every system answered to it.

    Returns:
        ``lines``, each recalled line once; ``metrics`` by task, their names in the order of their values; ``questions``,
        whose answers point to lines by number.
    """
    labels = _category_labels(results)
    metrics = {task: [main_metric(task), *LEXICAL] for task in dict.fromkeys(entry["task"] for entry in results)}
    # where some systems were asked after each period, the one answer of the others is the one after the last
    last = {entry["task"]: PERIODS for entry in results if any(key["retention"] for key in entry["keys"].values())}
    numbers: dict[str, int] = {}
    questions: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (task, system), members in answers.items():
        for one in members:
            period = one["period"] or last.get(task)
            place = (task, one["key"], one["conversation_id"], one["index"], period)
            asked = questions.setdefault(
                place,
                {
                    "task": task,
                    "key": one["key"],
                    "period": period,
                    "id": one["id"],
                    "category": labels.get((task, one["category"]), one["category"]),
                    "trap": one["is_trap"],
                    "question": one["question"],
                    "gold": one["gold"],
                    "lure": one["lure"],
                    "evidence": one["evidence"],
                    "answers": [],
                },
            )
            asked["answers"].append(_browsed(system, one, metrics[task], numbers))
    return {"lines": list(numbers), "metrics": metrics, "questions": list(questions.values())}


def _browsed(system: str, one: Mapping[str, Any], metrics: Sequence[str], numbers: dict[str, int]) -> dict[str, Any]:
    """One answer for the browser; ``numbers`` gives each recalled line its place, and grows."""
    evidence = set(one["evidence"])
    return {
        "system": system,
        "seed": one["seed"],
        "text": one["prediction"],
        "error": one["error"],
        "abstained": one["abstained"],
        "right": is_right(one),
        "found": len(evidence.intersection(one["recalled"])),
        "recalled": len(one["recalled"]),
        "scores": [round(one["metrics"][name], 3) if name in one["metrics"] else None for name in metrics],
        "consistent": one["consistent"],
        "judged": one["judged"],
        # a line is evidence where the turn of the same rank is
        "lines": [
            [numbers.setdefault(line, len(numbers)), int(turn in evidence)]
            for turn, line in zip(one["recalled"], one["recalled_lines"], strict=False)
        ],
    }


def _category_labels(results: Sequence[Results]) -> dict[tuple[str, int], str]:
    """Number and name of each category that was scored, by task and number."""
    return {
        (entry["task"], category["category"]): category_label(category)
        for entry in results
        for key in entry["keys"].values()
        for category in key["scores"]["categories"]
    }


def is_right(answer: Mapping[str, Any]) -> bool:
    """A success on an answerable question, an abstention on a trap; a failed question is not right."""
    if answer["status"] != "ok":
        return False
    return bool(answer["abstained"]) if answer["is_trap"] else bool(answer["metrics"].get("success"))
