"""F1 and evidence recall against the budget of recalled text: the memory in text mode beside BM25 + dense retrieval.

    python -m benchmarks.budget --checkpoint DIR
    python -m benchmarks.budget --checkpoint DIR --conversations conv-30 conv-49

Both systems show the same number of tokens, and the checkpoint's own language model answers for both; the budget 0 is the
pure tensor memory, whose prompt is the question alone. Answers are kept in ``--output``, so that a stopped run goes on.
Writes ``results/budget.json`` and ``docs/budget.svg``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from mlmf.config.evaluation import EvalConfig
from mlmf.config.model import MemorySettings
from mlmf.config.parse import run_script
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.tables import number
from mlmf.paths import atomic_path

BUDGETS = (0, 100, 200, 400, 800)
"""Tokens of recalled text in the prompt."""
SYSTEMS = ("mlmf", "hybrid")
RESULTS = Path("results/budget.json")
PLOT = Path("docs/budget.svg")
Figures = dict[str, dict[str, dict[str, Any]]]
"""What was measured, by system and budget."""


def measure(
    checkpoint: Path,
    conversations: Sequence[str] | None,
    budgets: Sequence[int],
    output: Path,
    limit: int | None = None,
) -> Figures:
    """Ask both systems LoCoMo's questions at every budget, or only the first ``limit`` of them."""
    figures: Figures = {}
    for budget in budgets:
        # without a budget an index has nothing to say
        for system in SYSTEMS if budget else SYSTEMS[:1]:
            config = EvalConfig(
                system=system, tasks="locomo", checkpoint=str(checkpoint), answer_model="checkpoint",
                memory=MemorySettings(recall_tokens=budget), window_tokens=budget, max_new_tokens=32,
                conversations=list(conversations) if conversations else None, output_dir=str(output / str(budget)), limit=limit,
            )  # fmt: skip
            entry = run_evaluation(config).results[0]
            figures.setdefault(system, {})[str(budget)] = figures_of(entry)
    return figures


def figures_of(entry: dict[str, Any]) -> dict[str, Any]:
    """What one results file says about F1, abstention, evidence and tokens."""
    scores = entry["keys"]["raw"]["scores"]
    return {
        "f1_answerable": scores["answerable_f1"]["mean"],
        "f1_interval": scores["answerable_f1"]["ci95"],
        "abstention": scores["abstention_on_traps"]["mean"],
        "over_refusal": scores["over_refusal"]["mean"],
        "evidence_recall": scores["evidence"]["recall"],
        "turns": scores["evidence"]["turns"],
        "tokens_read": entry["usage"]["tokens_read"],
        "n_questions": entry["n"]["answers"],
    }


def draw(figures: Figures, path: Path) -> None:
    """F1 and evidence recall against the budget, a line for each system.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("the plot needs matplotlib: pip install -e '.[plots]'") from error
    titles = {"f1_answerable": "answerable F1", "evidence_recall": "evidence recall"}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
        figure = Figure(figsize=(9, 3.2))
        panels = figure.subplots(1, len(titles))
        for axes, (name, title) in zip(panels, titles.items(), strict=True):
            for system, by_budget in figures.items():
                points = sorted((int(budget), one[name]) for budget, one in by_budget.items())
                axes.plot(*zip(*points, strict=True), marker="o", label=system)
            axes.set(title=title, xlabel="tokens of recalled text", ylim=(0, None))
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].legend(frameon=False)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")


def main() -> int:
    """Parse, measure, print, write and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the trained memory")
    parser.add_argument("--conversations", nargs="+", help="ids of LoCoMo; all ten without")
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS), help="tokens of recalled text")
    parser.add_argument("--output", type=Path, default=Path("outputs/budget"), help="where the answers are kept")
    parser.add_argument("--limit", type=int, help="the first so many questions only; nothing is written")
    arguments = parser.parse_args()
    figures = measure(
        arguments.checkpoint, arguments.conversations, arguments.budgets, arguments.output, arguments.limit
    )
    table = Table("system", "budget", "answerable F1", "evidence recall", "turns", "abstention", "over-refusal")
    for system, by_budget in figures.items():
        for budget, one in by_budget.items():
            values = (
                one[name] for name in ("f1_answerable", "evidence_recall", "turns", "abstention", "over_refusal")
            )
            table.add_row(system, budget, *(number(value) for value in values))
    Console().print(table)
    if arguments.limit is not None:
        return 0
    write_json(
        RESULTS,
        {
            **figures,
            "conversations": arguments.conversations or "all",
            "checkpoint": "/".join(arguments.checkpoint.resolve().parts[-2:]),
            "machine": machine(),
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
    )
    draw(figures, PLOT)
    return 0


if __name__ == "__main__":
    run_script(main)
