"""``--compare A B ...``: put the runs of finished output folders beside each other, without asking anything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group

from mlmf.config.evaluation import EvalConfig
from mlmf.errors import UserError
from mlmf.evaluation.compare import Run, compare_runs
from mlmf.evaluation.comparison_tables import comparison_grid
from mlmf.evaluation.folder import read_answers
from mlmf.evaluation.results import SCHEMA_VERSION, write_json
from mlmf.evaluation.run import Outcome
from mlmf.evaluation.run_tables import unlike_settings
from mlmf.evaluation.tables import markdown_grid
from mlmf.evaluation.terminal import comparison_report, warning_text
from mlmf.paths import atomic_write_text, check_writable_folder


def compare_folders(config: EvalConfig) -> Outcome:
    """Compare the runs in ``config.compare`` and write ``comparison.json`` and ``comparison.md`` into ``output_dir``.

    Raises:
        UserError: a folder holds no finished run of this version, or there are no two runs on the same questions.
    """
    assert config.compare
    output_dir = Path(config.output_dir)
    check_writable_folder(output_dir, "output_dir")
    runs = finished_runs([Path(folder) for folder in config.compare])
    comparisons = compare_runs(runs, config.seeds[0])
    if not comparisons:
        raise UserError(
            f"compare: {', '.join(config.compare)} hold no two runs that were asked the same questions of the same data"
        )
    warnings = [
        line
        for task in dict.fromkeys(run.results["task"] for run in runs)
        for line in unlike_settings([(run.label, run.results) for run in runs if run.results["task"] == task])
    ]
    write_json(output_dir / "comparison.json", {"schema_version": SCHEMA_VERSION, "comparisons": comparisons})
    parts = [
        "# Comparison",
        *(f"**Warning.** {line}" for line in warnings),
        markdown_grid(comparison_grid(comparisons)),
    ]
    atomic_write_text(output_dir / "comparison.md", "\n\n".join(parts) + "\n")
    tables = Group(*(warning_text(line) for line in warnings), comparison_report(comparisons))
    return Outcome([], tables, output_dir / "comparison.md", exit_code=0)


def finished_runs(folders: Sequence[Path]) -> list[Run]:
    """Every task and system of some output folders, labelled by system, and by folder too where that alone is not clear.

    Raises:
        UserError: a folder holds no ``results.json``, or one of another version.
    """
    found: list[tuple[Path, dict[str, Any]]] = []
    for folder in folders:
        path = folder / "results.json"
        if not path.is_file():
            raise UserError(f"{path}: no such file; compare takes output folders of finished runs")
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("schema_version") != SCHEMA_VERSION or "results" not in content:
            raise UserError(
                f"{path}: not the results of an output folder of this version; score it again with --score_only"
            )
        found += [(folder, entry) for entry in content["results"]]
    names = Counter((entry["task"], entry["system"]) for _, entry in found)
    return [
        Run(
            entry["system"] if names[entry["task"], entry["system"]] == 1 else f"{folder.name}/{entry['system']}",
            entry,
            read_answers(folder / entry["task"] / entry["system"], entry["seeds"]),
        )
        for folder, entry in found
    ]
