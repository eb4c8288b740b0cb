"""Every table of a report with its caption, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlmf.config.variants import variant_of
from mlmf.evaluation.ablation_table import COMPARED as ABLATED
from mlmf.evaluation.ablation_table import ablation_grid
from mlmf.evaluation.compare import Comparisons
from mlmf.evaluation.comparison_tables import comparison_grid, seed_grid
from mlmf.evaluation.cost_tables import cost_grid, ratio_grid
from mlmf.evaluation.evidence_tables import category_evidence_grid, evidence_grid
from mlmf.evaluation.retention_tables import retention_grid, triangle_grid
from mlmf.evaluation.run_tables import data_note, run_grid
from mlmf.evaluation.tables import Grid, Results, category_grid, judged_category_grid, main_grid, metric_grid, title

COMPARED = (
    "second minus first on the same questions; interval and first p-value by bootstrap over conversations; t-test over "
    "questions, which it takes for independent; corrected over the pairs by Holm"
)


@dataclass(frozen=True, slots=True)
class Captioned:
    """A table of a report."""

    part: str
    """The part of the report that it belongs to: a task under a key."""
    title: str
    grid: Grid
    note: str = ""
    """What a reader must know to read it."""


def tables(results: Sequence[Results], comparisons: Comparisons) -> list[Captioned]:
    """Every table of a report with its caption, task by task and key by key; what answers cost does not depend on a key."""
    found: list[Captioned] = []
    for task, entries in by_task(results).items():
        for key, members in by_key(entries).items():
            found += _scores(members, key, comparisons)
        found.append(Captioned(task, f"{task}: cost per question", cost_grid(entries)))
        ratios = ratio_grid(entries)
        if len(ratios[1]) > 1:
            found.append(Captioned(task, f"{task}: cost as a multiple of full_context's", ratios, "of the same run"))
        found.append(Captioned(task, f"{task}: how it was asked", run_grid(entries), data_note(entries)))
    return found


def _scores(members: Sequence[Results], key: str, comparisons: Comparisons) -> list[Captioned]:
    """The tables about the scores of one task under one key."""
    task = members[0]["task"]
    part = named(task, key)
    grids: list[tuple[str, Grid, str]] = []
    if members[0]["keys"][key]["scores"]["categories"]:
        grids.append(("F1 by category", category_grid(members, key), ""))
        judged = [one for one in members if one["keys"][key]["scores"]["answerable"]["J"]]
        if judged:
            grids.append(("J by category", judged_category_grid(judged, key), ""))
    grids.append(("every metric over the answerable questions", metric_grid(members, key), ""))
    grids.append(("evidence", evidence_grid(members, key), ""))
    grids.append(("sessions of the evidence", evidence_grid(members, key, "sessions"), ""))
    by_category = category_evidence_grid(members, key)
    if by_category[1]:
        grids.append(("evidence by category", by_category, ""))
    streamed = [entry for entry in members if entry["keys"][key]["retention"]]
    if streamed:
        grids.append(("retention, share of consistent answers", retention_grid(streamed, key), ""))
    judged = [entry for entry in streamed if entry["keys"][key]["retention"]["J"]]
    if judged:
        grids.append(("retention, share judged correct (J)", retention_grid(judged, key, "J"), ""))
    grids += [(f"A[t, p] of {entry['system']}", triangle_grid(entry, key), "") for entry in streamed]
    if any(len(entry["seeds"]) > 1 for entry in members):
        grids.append(("mean ± standard deviation over seeds", seed_grid(members, key), ""))
    if any(variant_of(entry["system"]) for entry in members):
        grids.append(("ablations", ablation_grid(members, comparisons.ablations, key), ABLATED))
    compared = [one for one in comparisons.pairs if (one["task"], one["key"]) == (task, key)]
    if compared:
        grids.append(("paired comparisons", comparison_grid(compared, with_task=False), COMPARED))
    main = Captioned(part, title(members[0], key), main_grid(members, key))
    return [main, *(Captioned(part, f"{part}: {name}", grid, note) for name, grid, note in grids)]


def named(task: str, key: str) -> str:
    """What titles call a task under a key."""
    return task if key == "raw" else f"{task}, {key} key"


def by_task(results: Sequence[Results]) -> dict[str, list[Results]]:
    """Results by task, in order."""
    return _grouped(results, lambda entry: [entry["task"]])


def by_key(results: Sequence[Results]) -> dict[str, list[Results]]:
    """Results by the keys they were scored against, in order."""
    return _grouped(results, lambda entry: list(entry["keys"]))


def _grouped(results: Sequence[Results], names: Callable[[Results], list[str]]) -> dict[str, list[Results]]:
    groups: dict[str, list[Results]] = {}
    for entry in results:
        for name in names(entry):
            groups.setdefault(name, []).append(entry)
    return groups
