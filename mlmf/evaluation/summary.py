"""What the output folder says over all its tasks and systems: ``results.json`` and the reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlmf.evaluation.compare import Run, compare_runs
from mlmf.evaluation.folder import all_results, read_answers, summary_lock
from mlmf.evaluation.report import markdown_report
from mlmf.evaluation.results import SCHEMA_VERSION, write_json
from mlmf.paths import atomic_write_text


def write_summary(output_dir: Path, own: Sequence[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Write ``results.json`` and ``report.md`` of a folder, over the run at hand and those before it.

    Args:
        output_dir: the folder.
        own: results of the run at hand, first in every table.
        seed: of the bootstrap, and picks the sample answers.

    Returns:
        The comparisons between systems, see :func:`mlmf.evaluation.compare.compare_runs`.
    """
    with summary_lock(output_dir):
        results = all_results(output_dir, own)
        answers = {
            (entry["task"], entry["system"]): read_answers(
                output_dir / entry["task"] / entry["system"], entry["seeds"]
            )
            for entry in results
        }
        comparisons = compare_runs(
            [Run(entry["system"], entry, answers[entry["task"], entry["system"]]) for entry in results], seed
        )
        content = {"schema_version": SCHEMA_VERSION, "results": results, "comparisons": comparisons}
        write_json(output_dir / "results.json", content)
        atomic_write_text(output_dir / "report.md", markdown_report(results, answers, comparisons, seed))
    return comparisons
