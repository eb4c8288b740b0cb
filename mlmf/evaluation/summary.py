"""What the output folder says over all its tasks and systems: ``results.json`` and the reports."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlmf.evaluation.ablations import compare_ablations
from mlmf.evaluation.compare import Comparisons, Run, compare_runs
from mlmf.evaluation.folder import all_results, read_answers, summary_lock
from mlmf.evaluation.html import html_report
from mlmf.evaluation.plots import draw_plots, save_plots
from mlmf.evaluation.report import markdown_report
from mlmf.evaluation.results import SCHEMA_VERSION, write_json
from mlmf.paths import atomic_write_text

logger = logging.getLogger(__name__)


def write_summary(output_dir: Path, own: Sequence[dict[str, Any]], seed: int) -> Comparisons:
    """Write results and reports of a folder, over the run at hand and those before it.

    ``report.html`` and ``plots/`` need the extra ``report``; without it, that they are missing is logged.

    Args:
        output_dir: the folder.
        own: results of the run at hand, first in every table.
        seed: of the bootstrap, and picks the sample answers.

    Returns:
        The comparisons between systems, and of the variants of the memory with the full one.
    """
    with summary_lock(output_dir):
        results = all_results(output_dir, own)
        answers = {
            (entry["task"], entry["system"]): read_answers(
                output_dir / entry["task"] / entry["system"], entry["seeds"]
            )
            for entry in results
        }
        runs = [Run(entry["system"], entry, answers[entry["task"], entry["system"]]) for entry in results]
        comparisons = Comparisons(compare_runs(runs, seed), compare_ablations(runs, seed))
        content = {
            "schema_version": SCHEMA_VERSION,
            "results": results,
            "comparisons": comparisons.pairs,
            "ablations": comparisons.ablations,
        }
        write_json(output_dir / "results.json", content)
        atomic_write_text(output_dir / "report.md", markdown_report(results, answers, comparisons, seed))
        if find_spec("matplotlib") and find_spec("jinja2"):
            plots = draw_plots(results, answers, comparisons.ablations)
            save_plots(plots, output_dir / "plots")
            atomic_write_text(output_dir / "report.html", html_report(results, answers, comparisons, plots))
        else:
            logger.warning("No report.html and no plots without jinja2 and matplotlib: pip install 'mlmf[report]'")
    return comparisons
