"""Curves of a training: losses, gates, what is found, the spread of nodes and the learning rate, one run after another.

    python -m benchmarks.curves outputs/reference_cloze outputs/reference --output docs/training.svg

Each folder is the ``output_dir`` of one run. A later stage goes on where the one before it ended, behind a dashed line. What
is 0 has no place on the logarithmic axis of the losses.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlmf.config.parse import run_script
from mlmf.errors import UserError
from mlmf.paths import atomic_path

Record = dict[str, float]
"""One line of ``metrics.jsonl``."""


@dataclass(frozen=True)
class Panel:
    """One plot: the metrics it shows, and its vertical axis."""

    title: str
    metrics: tuple[str, ...]
    is_log: bool = False
    top: float | None = None
    """End of the axis; by default the largest value."""


PANELS = (
    Panel("loss", ("loss/total", "loss/gen", "loss/evi", "loss/ret", "loss/hinge"), is_log=True),
    Panel("gates: shares", ("gates/working", "gates/episodic", "gates/semantic"), top=1.0),
    Panel("gates: opening, mean size of tanh(g)", ("gates/opening",)),
    Panel("share of questions whose evidence is read", ("nodes/found",), top=1.03),
    Panel("spread of the nodes (0: all alike)", ("nodes/spread",)),
    Panel("learning rate of the adapters", ("optimiser/learning_rate",)),
)
COLUMNS = 3


@dataclass(frozen=True)
class Stage:
    """A run among those that are drawn: its log, and how many steps were made before it."""

    name: str
    start: int
    records: list[Record]

    @property
    def end(self) -> int:
        """Steps made when it ended."""
        return self.start + int(self.records[-1]["step"])


def read_stages(folders: Sequence[Path]) -> list[Stage]:
    """The logs of some runs, each of which begins where the one before it ended.

    Raises:
        UserError: a folder without a log, or with one that is empty or damaged.
    """
    stages: list[Stage] = []
    for folder in folders:
        stages.append(Stage(folder.resolve().name, stages[-1].end if stages else 0, read_log(folder)))
    return stages


def read_log(folder: Path) -> list[Record]:
    """Every line of a run's ``metrics.jsonl``.

    Raises:
        UserError: there is none, it is empty, or a line cannot be read.
    """
    file = folder / "metrics.jsonl"
    if not file.is_file():
        raise UserError(f"{folder} holds no metrics.jsonl: give the output_dir of a run that has logged a step")
    records: list[Record] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise UserError(
                f"{file}, line {number} is cut off ({error}): go on with the run (--resume_from_checkpoint latest), which "
                "writes it anew, or delete the line"
            ) from error
    if not records:
        raise UserError(f"{file} is empty: the run has not come to its first logging_steps yet")
    return records


def points(stages: Sequence[Stage], metric: str) -> tuple[list[float], list[float]]:
    """Steps and values of a metric over all stages; what a stage did not log is not drawn, nor a line between stages."""
    steps, values = [], []
    for stage in stages:
        steps += [stage.start + record["step"] for record in stage.records] + [stage.end]
        values += [record.get(metric, math.nan) for record in stage.records] + [math.nan]
    return steps, values


def draw(stages: Sequence[Stage], path: Path) -> None:
    """All panels over the steps of all stages, as an svg; on a logarithmic axis, what is 0 is left out.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("the curves need matplotlib: pip install -e '.[plots]'") from error
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9}):
        figure = Figure(figsize=(12, 5.4), layout="constrained")
        panels = figure.subplots(math.ceil(len(PANELS) / COLUMNS), COLUMNS, sharex=True)
        for axes, panel in zip(panels.flat, PANELS, strict=True):
            for metric in panel.metrics:
                steps, values = points(stages, metric)
                if panel.is_log:
                    values = [value if value > 0 else math.nan for value in values]
                if not all(map(math.isnan, values)):
                    axes.plot(steps, values, linewidth=1.4, label=metric.partition("/")[2])
            for stage in stages[1:]:
                axes.axvline(stage.start, color="grey", linestyle="--", linewidth=1)
            if panel.is_log:
                axes.set_yscale("log")
            else:
                axes.set_ylim(0, panel.top)
                axes.yaxis.set_major_formatter("{x:g}")
            axes.set_title(panel.title, loc="left", fontsize=10)
            if len(panel.metrics) > 1:
                # beside the title, where no curve can run through it
                axes.legend(
                    loc="lower right", bbox_to_anchor=(1, 1), ncols=len(panel.metrics), frameon=False, fontsize=8,
                    handlelength=1, handletextpad=0.4, columnspacing=0.9, borderaxespad=0.1,
                )  # fmt: skip
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("optimiser steps")
        figure.suptitle(", then ".join(f"{stage.name} up to step {stage.end:,}" for stage in stages), fontsize=9)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")


def main() -> int:
    """Parse, read and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs, in the order in which they trained")
    parser.add_argument("--output", type=Path, default=Path("docs/training.svg"), help="file that is written")
    arguments = parser.parse_args()
    draw(read_stages(arguments.runs), arguments.output)
    return 0


if __name__ == "__main__":
    run_script(main)
