"""From the files of the runs to docs/recall.md, its curves, and results/recall.json."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.recall_data import CATEGORIES
from mlmf.errors import UserError
from mlmf.paths import atomic_path, atomic_write_text

SETTINGS = ("steps", "batch", "learning_rate", "test_questions")
"""What all runs of a table have in common."""
TITLES = {"facts": "Facts told once", "updates": "Updates: the newest value", "never_told": "Never told: abstain"}
FULL, NO_MEMORY = "full", "no_memory"
ABLATIONS = ("no_", "alpha_", "lambda_")
"""How the names of variants begin that are the full model less something."""
VISIBLE = 0.1
"""Drop from which an ablation is called visibly worse, if it is there from every seed: a cell of 60 questions answered to
95 % has a standard error of 0.03, and the worst of 18 cells is looked for."""
AIMS = "facts 0.98 at 8 sessions and 0.90 at 32, updates 0.95, never told 0.95"
INTRO = """# Does the memory carry facts across sessions?

Made by `make recall-benchmark`; do not edit. A tiny Llama from scratch reads dialogues of invented people
([`mlmf/data/synthetic.py`](../mlmf/data/synthetic.py)) session by session and is then asked, with nothing but the question
in its context: what was told once, what was told anew in a later session, and what was never told (where `unknown` is the
right answer). Training ends at 16 sessions; 32 were never trained on. A question counts as answered if greedy decoding
writes the one right word and then stops. Chance, the kind of answer known, is 0.06.

A distance of `n` means that `n` sessions lie between the start of the telling session and the question: 1 is the latest
session. For facts and never-told questions the conversation has `n` sessions, for updates `n + 2`.

* `full`: the package's memory in tensor mode. Only, the language model starts from nothing, so sessions are read by it while it
  learns, with gradient, and its fusion starts half open. Loss: answers, next tokens of the sessions, retention, evidence and the
  hinge on the gate's entropy.
* The other memories are `full` less something: `no_versions` does not lower outdated turns and `no_nothing` has nothing compete
  with what was found; the other `no_...` lack a part of the memory or of the loss (`no_entropy`: neither hinge nor sharpening);
  `alpha_scalar` has the paper's episodic write, `lambda_0` no retention loss.
* `no_memory` and `full_context` are the same Llama, as many parameters, with no or every session in its context; their
  attention starts by copying what it attends to, as the memory's fusion does. `full_context` is trained for as many steps
  from scratch, and is an upper bound only where it learned to read by then.
* `peer:...` are packages of others ([`recall_peers.py`](../benchmarks/recall_peers.py)) at about as many parameters. Where they
  stand at chance at every distance, they have not learned the task in these steps; what they would learn in more is not told.

A likely reason where a part is not missed: every answer stands in one turn, which semantic memory holds token by token, and no
conversation exceeds the capacity. Blends of sessions, their ends and steady embeddings have nothing to add to that.
"""


def read_runs(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The runs of each variant, by seed.

    Raises:
        UserError: there are none, or runs of one table differ in steps, batch or test questions.
    """
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not runs:
        raise UserError(f"{folder} holds no runs: train some first, python -m benchmarks.recall --variants full")
    for name in SETTINGS:
        values = {json.dumps(run[name]) for run in runs}
        if len(values) > 1:
            raise UserError(
                f"{folder}: runs with different {name} ({', '.join(sorted(values))}) do not belong into one table; "
                "give each setting its own --output_dir"
            )
    by_variant: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run["seed"]):
        by_variant[run["variant"]].append(run)
    return dict(by_variant)


def write_report(folder: Path, root: Path, order: Sequence[str]) -> None:
    """Write the table, the curves and the figures of every run in ``folder``; variants come in ``order``."""
    runs = read_runs(folder)
    names = [name for name in order if name in runs]
    means = {name: _means(runs[name], statistics.fmean) for name in names}
    atomic_write_text(root / "results" / "recall.json", json.dumps(means, indent=1) + "\n")
    draw(means, root / "docs" / "recall.svg")
    lines = [INTRO, _settings(runs), "![accuracy against distance](recall.svg)", ""]
    if FULL in runs:
        lines += _ablations(runs, [name for name in names if name.startswith(ABLATIONS) and name != NO_MEMORY])
    for category in CATEGORIES.values():
        lines += _table(category, {name: runs[name] for name in names})
    lines += _costs({name: runs[name] for name in names})
    missing = [name for name in order if name not in runs]
    if missing:
        lines += [f"Not run, and therefore not in the tables: {', '.join(missing)}.", ""]
    atomic_write_text(root / "docs" / "recall.md", "\n".join(lines))


def _means(runs: Sequence[Mapping[str, Any]], over: Any) -> dict[str, dict[str, float]]:
    first = runs[0]["accuracy"]
    return {
        category: {
            distance: round(over([run["accuracy"][category][distance] for run in runs]), 4)
            for distance in first[category]
        }
        for category in first
    }


def _settings(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    one = next(iter(runs.values()))[0]
    commits = sorted({str(run["git_commit"]) for members in runs.values() for run in members})
    return (
        f"Every variant: {one['steps']} steps of about {one['batch']['sessions']} sessions and "
        f"{one['batch']['questions']} questions, peak learning rate {one['learning_rate']}, "
        f"{one['test_questions']} test questions per cell and seed. Mean over seeds, ± standard deviation where there "
        f"are several. Aims for the full model: {AIMS}. Measured at commit {', '.join(commits)}.\n"
    )


def _ablations(runs: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> list[str]:
    """One sentence an ablation: where it is worse than the full model, if anywhere."""
    sentences = [_worst(name, runs[FULL], runs[name]) for name in names]
    if not sentences:
        return []
    intro = (
        "The cell in which each ablation loses most against `full`, of the same seeds. It counts as visibly worse from a "
        f"drop of {VISIBLE:.2f} on that is there from every seed.\n"
    )
    return ["## What each part is worth", "", intro, *(f"* {one}" for one in sentences), ""]


def _worst(name: str, full: Sequence[Mapping[str, Any]], ablated: Sequence[Mapping[str, Any]]) -> str:
    by_seed = {run["seed"]: run["accuracy"] for run in full}
    pairs = [(by_seed[run["seed"]], run["accuracy"]) for run in ablated if run["seed"] in by_seed]
    if not pairs:
        return f"`{name}`: no seed in common with `full`."
    drops = {
        (category, distance): [ours[category][distance] - theirs[category][distance] for ours, theirs in pairs]
        for category, table in pairs[0][0].items()
        for distance in table
    }
    (category, distance), worst = max(drops.items(), key=lambda item: statistics.fmean(item[1]))
    drop = statistics.fmean(worst)
    where = f"{category.replace('_', ' ')} at {distance}"
    if drop <= 0:
        return f"`{name}` is not worse anywhere."
    spread = f" ± {statistics.stdev(worst):.2f}" if len(worst) > 1 else ""
    if drop >= VISIBLE and min(worst) > 0:
        return f"`{name}` is visibly worse: {where}, by {drop:.2f}{spread}."
    return f"`{name}` is not visibly worse anywhere; its largest drop is {where}, by {drop:.2f}{spread}."


def _table(category: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    distances = list(next(iter(runs.values()))[0]["accuracy"][category])
    lines = [f"## {TITLES[category]}", "", "| variant | seeds | " + " | ".join(distances) + " |"]
    lines.append("|---|---|" + "---|" * len(distances))
    for name, members in runs.items():
        mean = _means(members, statistics.fmean)[category]
        spread = _means(members, statistics.stdev)[category] if len(members) > 1 else {}
        cells = [f"{mean[d]:.2f}" + (f" ± {spread[d]:.2f}" if spread else "") for d in distances]
        lines.append(f"| {name} | {len(members)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _costs(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    lines = [
        "## What it took",
        "",
        "| variant | parameters | stage began at step (first seed) | CPU seconds of training |",
    ]
    lines.append("|---|---|---|---|")
    for name, members in runs.items():
        began = ", ".join(f"{sessions}: {step}" for sessions, step in members[0]["stage_began_at_step"].items())
        seconds = statistics.fmean(run["cpu_seconds"] for run in members)
        lines.append(f"| {name} | {members[0]['parameters']:,} | {began} | {seconds:.0f} |")
    return [*lines, ""]


def draw(means: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Accuracy against distance, one panel a category.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("the curves need matplotlib: pip install -e '.[bench]'") from error
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "recall"  # else every drawing differs from the last
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(TITLES), figsize=(13, 4), sharey=True)
    for axis, (category, title) in zip(axes, TITLES.items(), strict=True):
        for name, table in means.items():
            places = range(len(table[category]))
            axis.plot(places, list(table[category].values()), marker="o", label=name)
            axis.set_xticks(places, list(table[category]))
        axis.set(title=title, xlabel="sessions from telling to question", ylim=(-0.03, 1.03))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy")
    axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    with atomic_path(path) as temporary:
        figure.savefig(temporary, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
