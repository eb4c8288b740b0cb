"""Write ``RESULTS.md`` and ``results/reference.json`` from finished runs; nothing is asked or scored again.

Examples:
    python -m mlmf.evaluation.reference --config configs/results/reference.yaml
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlmf.config.parse import parse_config, run_script
from mlmf.config.reference import ReferenceConfig
from mlmf.data.locomo import CATEGORY_NAMES
from mlmf.errors import UserError
from mlmf.evaluation.compare import Run, compare_runs
from mlmf.evaluation.comparison_tables import comparison_grid
from mlmf.evaluation.cost_tables import cost_grid, ratio_grid
from mlmf.evaluation.folder import read_answers
from mlmf.evaluation.kept_runs import keep_run, keep_tests, kept_run, kept_tests
from mlmf.evaluation.reference_plots import save_reference_plots
from mlmf.evaluation.reference_runs import (
    BENCHMARKS,
    GROUPS,
    SPEED,
    Entry,
    headline_figures,
    read_group,
    reference_json,
)
from mlmf.evaluation.results import write_json
from mlmf.evaluation.retention_tables import retention_grid, triangle_grid
from mlmf.evaluation.run_tables import unlike_settings
from mlmf.evaluation.tables import Grid, category_grid, main_grid, markdown_grid, metric_grid, number, title
from mlmf.paths import atomic_write_text

UNMEASURED = "not measured"
Group = Mapping[str, Entry | None]
PAPER = (
    ("success rate (ours: of answerable questions)", "0.469", "locomo", "success"),
    ("F1, LoCoMo", "0.618", "locomo", "f1_answerable"),
    ("F1, multi-hop", "0.594", "locomo", "multi_hop"),
    ("BLEU-1", "0.632", "locomo", "bleu1"),
    ("six-period retention, LOCCO (ours: R6)", "0.569", "locco", "r6"),
    ("false memories, LOCCO (ours: of the traps)", "0.051", "locco", "false_memory_rate"),
    ("context usage", "0.584", "locomo", "context_usage"),
    ("times the speed of reading the whole conversation", "10.4", "locomo", "speedup"),
)
"""What the MLMF paper (arXiv 2603.29194) says of its full system in its abstract and text, shares from 0 to 1, and our quantity of that name."""
CLAIMS = """The paper's figures are claims about another model: no code, weights or answers of it are public, its tables mix data sets \
and metrics, and none of its figures can be reproduced. Ours are of a model of 135 million parameters; rows share a name, not a protocol. \
Of its tables only these figures were at hand, which its abstract and text repeat; its Table V has its counterpart above."""


def page(config: ReferenceConfig, groups: Mapping[str, Group], plots: Sequence[str] = ()) -> str:
    """The whole of ``RESULTS.md``; ``plots`` are as :func:`~mlmf.evaluation.reference_plots.save_reference_plots` gives them."""
    parts = [
        "# Results",
        "Written by `make results` from the results of finished runs. F1 on LoCoMo is the official score; every table says how "
        f"many questions it is over; what nobody ran is {UNMEASURED}. `docs/evaluation.md` says what each column means.",
    ]
    titles = {
        "locomo_zero_shot": "LoCoMo, never trained on",
        "locomo_in_domain": "LoCoMo, in-domain: trained on other conversations of it",
        "locco": "LOCCO, users never trained on",
        "training": "Before and after training",
        "ablations": "Each part of the memory left out",
    }
    for group, heading in titles.items():
        if groups[group]:
            parts += [f"## {heading}", *_group(groups[group])]
        if group == "ablations" and groups[group]:
            parts += _tests(config, groups[group])
    if groups[SPEED]:
        parts += ["## How fast, beside reading the whole conversation", *_costs(groups[SPEED])]
    parts += ["## Beside the paper", CLAIMS, markdown_grid(paper_grid(groups, config.main)), *plots]
    if config.errors is not None:
        parts.append(_errors(config.errors))
    return "\n\n".join(parts) + "\n"


def _group(group: Group) -> list[str]:
    """The tables of one group of runs, under each key that they were scored with."""
    measured = [entry for entry in group.values() if entry is not None]
    if not measured:
        return [f"{', '.join(group)}: {UNMEASURED}."]
    parts = []
    for key in ("raw", "audited"):
        scored = [entry for entry in measured if key in entry["keys"]]
        if not scored:
            continue
        grids: list[Callable[[Sequence[Entry], str], Grid]] = [main_grid, category_grid, metric_grid]
        parts.append(f"**{title(scored[0], key)}**")
        parts += [markdown_grid(grid(scored, key)) for grid in grids]
        remembered = [entry for entry in scored if entry["keys"][key]["retention"] is not None]
        if remembered:
            parts.append(markdown_grid(retention_grid(remembered, key)))
            parts += [f"A of {one['system']}:\n\n{markdown_grid(triangle_grid(one, key))}" for one in remembered]
    parts.append(markdown_grid(cost_grid(measured)))
    streamed = [one["system"] for one in measured if any(key["retention"] for key in one["keys"].values())]
    if streamed:
        parts.append(f"Means over the questions after every period, when less has been said: {', '.join(streamed)}.")
    if any(entry["ratios_to_full_context"] is not None for entry in measured):
        parts += ["As multiples of full_context in the same run:", markdown_grid(ratio_grid(measured))]
    parts += _who_answers(measured)
    parts += unlike_settings([(entry["system"], entry) for entry in measured])
    absent = [label for label, entry in group.items() if entry is None]
    # once, and not as a row of empty cells in every table
    return [*parts, f"{', '.join(absent)}: {UNMEASURED}."] if absent else parts


def _costs(group: Group) -> list[str]:
    """What the runs of one evaluation cost, on the few conversations that the dearest of them was asked about."""
    measured = [entry for entry in group.values() if entry is not None]
    if not measured:
        return [f"{', '.join(group)}: {UNMEASURED}."]
    about = f"Asked one after the other on the same machine. {title(measured[0], 'raw')}; what they score is in the tables above."
    parts = [about, markdown_grid(cost_grid(measured)), markdown_grid(ratio_grid(measured))]
    absent = [label for label, entry in group.items() if entry is None]
    return [*parts, f"{', '.join(absent)}: {UNMEASURED}."] if absent else parts


def _who_answers(entries: Sequence[Entry]) -> list[str]:
    """Which language model answered for the text systems: a trained one and an untrained one are not compared by memory."""
    models: dict[str, list[str]] = {}
    for entry in entries:
        for settings in entry["settings"].values():
            if (kind := settings.get("answer_model")) is not None:
                name = "the checkpoint's model" if kind == "checkpoint" else str(settings.get("base_model"))
                models.setdefault(name if kind != "base" else f"{name} as it is, untrained", []).append(
                    entry["system"]
                )
    return [f"Answered by {model}: {', '.join(dict.fromkeys(systems))}." for model, systems in models.items()]


def _tests(config: ReferenceConfig, group: Group) -> list[str]:
    """Paired tests of the full model against each of the others, anew where the answers of all of them are there."""
    measured = {label: entry for label, entry in group.items() if entry is not None}
    kept = None if config.kept is None else Path(config.kept) / "ablations"
    untested: list[str] = []
    if kept is not None and not all(Path(config.ablations[label]).exists() for label in measured):
        pairs, untested = kept_tests(kept, measured)
    else:
        runs = [
            Run(label, entry, read_answers(Path(config.ablations[label]), entry["seeds"]))
            for label, entry in measured.items()
        ]
        # the full model first, so that a difference is what leaving a part out does
        runs.sort(key=lambda run: run.label != config.main)
        pairs = compare_runs(runs, config.seed, against=config.main)
        if kept is not None:
            keep_tests(kept, pairs, measured)
    parts = [markdown_grid(comparison_grid(pairs))] if pairs else []
    if untested:
        parts.append(f"Not tested, since answers that the figures above rest on are gone: {', '.join(untested)}.")
    return parts


def _read_groups(config: ReferenceConfig) -> dict[str, dict[str, Entry | None]]:
    """The runs of every group: from their folders, or as they were kept before."""
    groups = {}
    for name in GROUPS:
        group = read_group(name, getattr(config, name))
        if config.kept is not None:
            for label in [label for label, entry in group.items() if entry is None]:
                group[label] = kept_run(Path(config.kept) / name, name, label)
        groups[name] = group
    return groups


def _keep(config: ReferenceConfig, groups: Mapping[str, Group]) -> list[str]:
    """Keep the runs whose folders are there; returns which ones are only kept."""
    assert config.kept is not None
    only_kept = []
    for name, group in groups.items():
        for label, entry in group.items():
            if entry is not None and Path(getattr(config, name)[label]).exists():
                keep_run(Path(config.kept) / name, entry)
            elif entry is not None:
                only_kept.append(f"{name}.{label}")
    return only_kept


def paper_grid(groups: Mapping[str, Group], main: str) -> Grid:
    """The paper's figures, and ours zero-shot and in-domain where they were measured."""
    header = ["quantity", "paper's claim", "ours, zero-shot", "ours, in-domain"]
    rows = []
    for quantity, claim, task, name in PAPER:
        if task == "locco":
            ours, in_domain = _cell(_figure(groups, "locco", main, name)), "-"
        else:
            ours = _cell(_figure(groups, "locomo_zero_shot", main, name))
            in_domain = _cell(_figure(groups, "locomo_in_domain", main, name))
        rows.append([quantity, claim, ours, in_domain])
    return header, rows


def _figure(groups: Mapping[str, Group], group: str, label: str, name: str) -> float | None:
    entry = groups[group].get(label)
    if entry is None:
        return None
    scores = entry["keys"]["raw"]["scores"]
    if name in ("bleu1", "success"):
        value: float | None = scores["answerable"][name]["mean"]
        return value
    if name == "multi_hop":
        return next((one["f1"] for one in scores["categories"] if one["name"] == CATEGORY_NAMES[1]), None)
    return headline_figures(groups, group, label, (name,))[name]


def _cell(value: float | None) -> str:
    return UNMEASURED if value is None else number(value)


def _errors(file: str) -> str:
    path = Path(file)
    if not path.is_file():
        raise UserError(f"errors {file}: no such file; write what was read there, or give null")
    return path.read_text(encoding="utf-8").strip()


def _refuse_to_lose(path: Path, found: Mapping[str, Any]) -> None:
    """Keep figures that were measured once from giving way to none, as in a clone without the runs."""
    if not path.is_file():
        return
    try:
        before = _measured(json.loads(path.read_text(encoding="utf-8")))
    except (AttributeError, ValueError):
        return  # nothing that this command wrote
    gone = sorted(f"{label} ({group}: {name})" for label, group, name in before - _measured(found))
    if gone:
        raise UserError(
            f"{path} has figures of runs that are not there now: {', '.join(gone[:5])}"
            f"{f' and {len(gone) - 5} more' if len(gone) > 5 else ''}; run them again with evaluate.py, or pass --overwrite true"
        )


def _measured(headline: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Label, group and name of every figure that there is; the headlines of the groups are those of a label."""
    labels = {label: groups for label, groups in headline.items() if label not in BENCHMARKS}
    return {
        (label, group, name)
        for label, groups in labels.items()
        for group, figures in groups.items()
        for name, value in figures.items()
        if value is not None
    }


def main() -> int:
    """Parse, read, write."""
    summary, _, examples = (__doc__ or "").partition("\n\n")
    prog = "python -m mlmf.evaluation.reference"
    config = parse_config(ReferenceConfig, None, prog=prog, description=summary, epilog=examples)
    groups = _read_groups(config)
    if not any(groups.values()):
        raise UserError(f"no run is named: give --config with labels and folders under {', '.join(groups)}")
    figures_found = reference_json(groups, config.main)
    if not config.overwrite:
        _refuse_to_lose(Path(config.figures), figures_found)
    only_kept = [] if config.kept is None else _keep(config, groups)
    text = page(config, groups, save_reference_plots(config, groups) if config.plots is not None else ())
    write_json(Path(config.figures), figures_found)
    atomic_write_text(Path(config.output), text)
    unmeasured = sum(entry is None for group in groups.values() for entry in group.values())
    print(f"{config.output} and {config.figures}; {unmeasured} runs are {UNMEASURED}")
    if only_kept:
        print(f"as they were kept, since their folders are not there: {', '.join(only_kept)}")
    return 0


if __name__ == "__main__":
    run_script(main)
