"""The plots of a report: F1 by category, what is kept of each period, and what answers cost as the history grows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlmf.config.variants import variant_of
from mlmf.data.locco import PERIODS
from mlmf.evaluation.folder import Answers
from mlmf.evaluation.report_tables import by_key, by_task, named
from mlmf.evaluation.tables import Results, category_label
from mlmf.paths import atomic_write_bytes, atomic_write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Plots = dict[str, "Figure"]

BINS = 8
"""Groups of questions with a history of about the same length; each is one point of a growth plot."""
_INK = "#010203"
"""Colour of text and axes; in an embedded plot it gives way to the text colour of the page."""
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_GROWTH = {"tokens_read": "tokens read per question", "seconds": "seconds per question"}
_SIZE = (8, 3.4)
"""Inches, of all plots but the heat maps."""


def draw_plots(results: Sequence[Results], answers: Answers, ablations: Sequence[Mapping[str, Any]] = ()) -> Plots:
    """Every plot that the results have numbers for, by name (``<task>-<key>-<what>``).

    Args:
        results: contents of results files.
        answers: by task and system, as :func:`mlmf.evaluation.folder.read_answers` gives them; systems without any are
            not in the plots that need them.
        ablations: as :func:`mlmf.evaluation.ablations.compare_ablations` gives them.
    """
    from matplotlib import rc_context

    plots: Plots = {}
    with rc_context(_STYLE):
        for task, entries in by_task(results).items():
            for key, members in by_key(entries).items():
                name, title = f"{task}-{key}", named(task, key)
                if any(entry["keys"][key]["scores"]["categories"] for entry in members):
                    plots[f"{name}-categories"] = _titled(_categories(members, key), f"{title}: F1 by category")
                variants = [entry for entry in members if variant_of(entry["system"])]
                if variants:
                    figure = _ablations(variants, ablations, key)
                    plots[f"{name}-ablations"] = _titled(figure, f"{title}: what each part of the memory is worth")
                streamed = [entry for entry in members if entry["keys"][key]["retention"]]
                if streamed:
                    figure = _triangles(streamed, key)
                    plots[f"{name}-triangle"] = _titled(figure, f"{title}: A[t, p], consistent answers")
                    figure = _retention(streamed, key)
                    plots[f"{name}-retention"] = _titled(figure, f"{title}: what is kept as periods pass")
            answered = [entry for entry in entries if (task, entry["system"]) in answers]
            for field, cost in _GROWTH.items() if answered else ():
                figure = _growth(answered, answers, field)
                plots[f"{task}-growth-{field}"] = _titled(figure, f"{task}: {cost}, as the history grows")
    return plots


def _titled(figure: Figure, title: str) -> Figure:
    """A plot is also looked at as a file, away from the page, so it says itself what it shows."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def save_plots(plots: Plots, folder: Path) -> None:
    """Write each plot as ``<name>.png`` and ``<name>.svg``."""
    for name, figure in plots.items():
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150, facecolor="white")
        atomic_write_bytes(folder / f"{name}.png", picture.getvalue())
        atomic_write_text(folder / f"{name}.svg", svg_text(name, figure, facecolor="white"))


def embedded_svg(name: str, figure: Figure) -> str:
    """A plot as an ``<svg>`` element on a transparent ground, its ink the text colour of the page."""
    text = svg_text(name, figure, transparent=True)
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def svg_text(name: str, figure: Figure, **how: Any) -> str:
    """A plot as SVG, the same text for the same plot: no date, and ids from its name, which keeps the plots of a page apart.

    Args:
        name: of the plot.
        figure: the plot.
        how: further arguments of matplotlib's ``savefig``.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, **how)
    return buffer.getvalue()


def _categories(entries: Sequence[Results], key: str) -> Figure:
    from matplotlib.figure import Figure

    scores = [entry["keys"][key]["scores"]["categories"] for entry in entries]
    labels = {category["category"]: category_label(category) for found in scores for category in found}
    figure = Figure(figsize=_SIZE)
    axes = figure.subplots()
    width = 0.8 / len(entries)
    places = np.arange(len(labels))
    for position, (entry, found) in enumerate(zip(entries, scores, strict=True)):
        means = {category["category"]: category["f1"] for category in found}
        heights = _heights(means.get(number) for number in sorted(labels))
        axes.bar(places + (position - (len(entries) - 1) / 2) * width, heights, width, label=entry["system"])
    axes.set_xticks(places, [labels[number] for number in sorted(labels)])
    axes.set_ylabel("F1")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _triangles(entries: Sequence[Results], key: str) -> Figure:
    """A[t, p] of each system as a heat map."""
    from matplotlib.figure import Figure

    columns = min(3, len(entries))
    rows = -(-len(entries) // columns)
    figure = Figure(figsize=(0.6 + 2.6 * columns, 0.3 + 2.7 * rows))
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    panels = grid.flatten()
    for axes, entry in zip(panels, entries, strict=False):
        cells = np.full((PERIODS, PERIODS), np.nan)
        for t, values in enumerate(entry["keys"][key]["retention"]["consistency"]["A"]):
            cells[t, : len(values)] = [np.nan if value is None else value for value in values]
        axes.imshow(cells, vmin=0, vmax=1, cmap="viridis")
        for t, p in np.argwhere(np.isfinite(cells)):
            shade = "white" if cells[t, p] < 0.6 else "black"
            axes.text(p, t, f"{cells[t, p]:.2f}", ha="center", va="center", fontsize=7, color=shade)
        axes.set_xticks(range(PERIODS), range(1, PERIODS + 1))
        axes.set_yticks(range(PERIODS), range(1, PERIODS + 1))
        axes.set_title(entry["system"], fontsize=9)
        axes.set_xlabel("asked about period")
        axes.set_ylabel("after period")
    for axes in panels[len(entries) :]:
        axes.set_axis_off()
    return figure


def _retention(entries: Sequence[Results], key: str) -> Figure:
    """Figure 2 of the MLMF paper: share of consistent answers about the first period after each later one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE)
    panels: Any = figure.subplots(1, 2, sharey=True)
    first, mean_of_all = panels
    times = range(1, PERIODS + 1)
    for entry in entries:
        rows = entry["keys"][key]["retention"]["consistency"]["A"]
        first.plot(times, [np.nan if row[0] is None else row[0] for row in rows], marker="o", label=entry["system"])
        means = [
            np.mean(known) if (known := [value for value in row if value is not None]) else np.nan for row in rows
        ]
        mean_of_all.plot(times, means, marker="o", label=entry["system"])
    first.set_title("about period 1", fontsize=9)
    mean_of_all.set_title("about all periods so far", fontsize=9)
    first.set_ylabel("consistent answers")
    for axes in (first, mean_of_all):
        axes.set_xlabel("asked after period")
        axes.set_ylim(0, 1)
    _legend(mean_of_all)
    return figure


def _ablations(entries: Sequence[Results], ablations: Sequence[Mapping[str, Any]], key: str) -> Figure:
    """Figure 4 of the MLMF paper: the score of each variant, every seed a dot, and its difference to the full memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE)
    panels: Any = figure.subplots(1, 2, sharey=True)
    scores, differences = panels
    rows = range(len(entries))
    found = [entry["keys"][key] for entry in entries]
    means = [one["scores"]["answerable_f1"] for one in found]
    scores.barh(rows, _heights(one["mean"] for one in means), color="tab:blue", alpha=0.6)
    for row, one in zip(rows, found, strict=True):
        values = [value for value in one["over_seeds"]["answerable_f1"]["values"].values() if value is not None]
        scores.plot(values, [row] * len(values), "o", color="tab:blue", markersize=4)
    scores.set_yticks(rows, [str(variant_of(entry["system"])) for entry in entries])
    scores.invert_yaxis()
    scores.set_xlim(left=0)
    scores.set_xlabel("answerable F1 (bar: all seeds, dots: each)")
    tested = {
        one["systems"][1]: one
        for one in ablations
        if (one["task"], one["key"], one["measure"]) == (entries[0]["task"], key, "answerable_f1")
    }
    for row, entry in zip(rows, entries, strict=True):
        one = tested.get(entry["system"])
        if one is not None:
            low, high = one["ci95"] or [one["difference"]] * 2
            differences.plot([low, high], [row, row], color="tab:blue")
            differences.plot([one["difference"]], [row], "o", color="tab:blue")
    differences.axvline(0, color=_INK, linewidth=0.8)
    differences.set_xlabel("difference to the full memory, 95 % interval")
    return figure


def _heights(values: Iterable[float | None]) -> list[float]:
    return [np.nan if value is None else value for value in values]


def _growth(entries: Sequence[Results], answers: Answers, field: str) -> Figure:
    """Mean cost of a question against the tokens said before it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE)
    axes = figure.subplots()
    for entry in entries:
        rows = answers[entry["task"], entry["system"]]
        key = rows[0]["key"] if rows else None
        costs: dict[int, list[float]] = {}
        for row in rows:
            if row["status"] == "ok" and row["key"] == key:
                costs.setdefault(row["tokens_history"], []).append(row[field])
        # the questions about one history stay together, or they would stand above each other
        lengths = np.array_split(np.array(sorted(costs)), BINS)
        middles = [
            (np.average(group, weights=[len(costs[x]) for x in group]), np.mean([y for x in group for y in costs[x]]))
            for group in lengths
            if len(group)
        ]
        axes.plot([x for x, _ in middles], [y for _, y in middles], marker="o", label=entry["system"])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("tokens said before the question")
    axes.set_ylabel(_GROWTH[field])
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
