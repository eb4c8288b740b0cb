"""The plots of ``RESULTS.md``, beside Figures 2 to 4 of the MLMF paper: what is kept, what it costs, what each part is worth."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os.path import relpath
from pathlib import Path

from mlmf.config.reference import ReferenceConfig
from mlmf.config.variants import variant_of
from mlmf.errors import UserError
from mlmf.evaluation.ablations import compare_ablations
from mlmf.evaluation.compare import Run
from mlmf.evaluation.folder import read_answers
from mlmf.evaluation.plots import Plots, draw_plots, svg_text
from mlmf.evaluation.reference_runs import Entry
from mlmf.paths import atomic_write_text

PLOTS = {
    "retention": ("locco", "-raw-retention", "Figure 2 of the paper: what is kept as periods pass"),
    "growth": ("locco", "-growth-tokens_read", "Figure 3: tokens read for a question, as the history grows"),
    "ablations": ("ablations", "-raw-ablations", "Figure 4: what each part of the memory is worth"),
}
"""By file name: the group of runs, how the plot's name ends (:func:`mlmf.evaluation.plots.draw_plots`), the caption."""


def save_reference_plots(config: ReferenceConfig, groups: Mapping[str, Mapping[str, Entry | None]]) -> list[str]:
    """Draw what was measured into the folder ``config.plots``.

    Returns:
        Markdown for each plot, whose link is relative to the page.

    Raises:
        UserError: matplotlib is not installed.
    """
    assert config.plots is not None
    if find_spec("matplotlib") is None:
        raise UserError("plots needs matplotlib, which is not installed: pip install 'mlmf[plots]', or give null")
    shown = []
    drawn = {group: _draw(getattr(config, group), groups[group], config.seed) for group, _, _ in PLOTS.values()}
    for file, (group, ending, caption) in PLOTS.items():
        path = Path(config.plots) / f"{file}.svg"
        for name, figure in drawn[group].items():
            if name.endswith(ending):
                atomic_write_text(path, svg_text(file, figure, facecolor="white"))
        # one that needs answers which are gone stays as it was drawn from them
        if path.is_file() and any(groups[group].values()):
            link = Path(relpath(path, Path(config.output).parent)).as_posix()
            shown.append(f"{caption}:\n\n![{caption}]({link})")
    return shown


def _draw(folders: Mapping[str, str], group: Mapping[str, Entry | None], seed: int) -> Plots:
    """Every plot of a group; where the folder of a run is gone, those that need no answers."""
    measured = {label: entry for label, entry in group.items() if entry is not None}
    if not all(Path(folders[label]).exists() for label in measured):
        kept = [{**entry, "system": label} for label, entry in measured.items() if variant_of(label) is None]
        plots = draw_plots(kept, {})
        return {name: figure for name, figure in plots.items() if name.endswith(PLOTS["retention"][1])}
    runs = [_run(label, entry, folders[label]) for label, entry in measured.items()]
    answers = {(run.results["task"], run.results["system"]): run.answers for run in runs}
    return draw_plots([run.results for run in runs], answers, compare_ablations(runs, seed))


def _run(label: str, entry: Entry, folder: str) -> Run:
    """A finished run; the variants of an ablation are told apart by the names of their systems, which are their folders'."""
    system = Path(folder).name
    name = label if variant_of(system) is None else system
    return Run(name, {**entry, "system": name}, read_answers(Path(folder), entry["seeds"]))
