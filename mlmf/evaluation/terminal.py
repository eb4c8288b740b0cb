"""The tables that a run ends with, as wide as a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mlmf.config.variants import variant_of
from mlmf.evaluation.ablation_table import short_ablation_grid
from mlmf.evaluation.compare import Comparisons
from mlmf.evaluation.comparison_tables import short_comparison_grid, short_seed_grid
from mlmf.evaluation.report import first_line, warnings
from mlmf.evaluation.report_tables import by_key, by_task, named
from mlmf.evaluation.retention_tables import retention_grid
from mlmf.evaluation.tables import Grid, Results, category_grid, short_grid, title

HEADER_CHARACTERS = 10
"""Width from which the words of a header stand below each other."""


def warning_text(warning: str) -> Text:
    """A warning, for a terminal."""
    return Text(f"Warning: {warning}", style="yellow")


def comparison_report(comparisons: Sequence[Mapping[str, Any]]) -> Group:
    """The comparisons of systems on their answerable questions, for a terminal."""
    tables = []
    for task, key in dict.fromkeys((one["task"], one["key"]) for one in comparisons):
        members = [one for one in comparisons if (one["task"], one["key"]) == (task, key)]
        caption = f"{named(task, key)}: second minus first, F1 of answerable questions"
        tables.append(_rich(short_comparison_grid(members), caption))
    return Group(*tables)


def terminal_report(results: Sequence[Results], comparisons: Comparisons) -> Group:
    """The same tables for a terminal, without the samples."""
    limited = any(entry["is_limited"] for entry in results)
    parts: list[Table | Text] = [Text(first_line(results), style="bold yellow")] if limited else []
    parts += [warning_text(warning) for warning in warnings(results)]
    for task, entries in by_task(results).items():
        for key, members in by_key(entries).items():
            name = named(task, key)
            parts.append(_rich(short_grid(members, key), title(members[0], key)))
            if members[0]["keys"][key]["scores"]["categories"]:
                parts.append(_rich(category_grid(members, key), f"{name}: F1 by category"))
            streamed = [entry for entry in members if entry["keys"][key]["retention"]]
            if streamed:
                parts.append(_rich(retention_grid(streamed, key), f"{name}: retention (consistent answers)"))
            several = [entry for entry in members if len(entry["seeds"]) > 1]
            if several:
                parts.append(_rich(short_seed_grid(several, key), f"{name}: mean ± standard deviation over seeds"))
            if any(variant_of(entry["system"]) for entry in members):
                grid = short_ablation_grid(members, comparisons.ablations, key)
                parts.append(_rich(grid, f"{name}: ablations: difference to the full memory"))
    return Group(*parts, comparison_report(comparisons.pairs))


def _rich(grid: Grid, caption: str) -> Table:
    header, rows = grid
    table = Table(title=caption, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for position, name in enumerate(header):
        # broken here, because the library would rather cut numbers short than break a long header
        folded = fill(name, HEADER_CHARACTERS, break_long_words=False, break_on_hyphens=False)
        table.add_column(folded, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
