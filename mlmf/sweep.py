"""Search for settings: ``train.py --sweep configs/train/sweep.yaml`` trains each trial and asks users held back from it.

Files::

    results.json                 every trial, best first, with who was held back
    table.md                     the same for people
    best.yaml                    settings of the best trial, for train.py; it trains on all conversations again
    trial_<hash>/run/            what train.py leaves
    trial_<hash>/eval/           what evaluate.py leaves, about those held back
    trial_<hash>/trial.json      what was found; a trial that has it is not run again

The hash is of all that a trial depends on, so that a stopped or widened search goes on where it was, and agents of a
wandb sweep may share a folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from mlmf.config.evaluation import EvalConfig
from mlmf.config.parse import dump_config
from mlmf.config.sweep import SweepConfig, with_settings
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.tables import Grid, markdown_grid
from mlmf.paths import atomic_write_text, check_writable_folder
from mlmf.training.data import load_training_data, training_split
from mlmf.training.run import run_training

logger = logging.getLogger(__name__)

FIGURES = ("overall_f1", "answerable_f1", "false_memory", "over_refusal")


def combinations(config: SweepConfig) -> list[dict[str, Any]]:
    """The settings that each trial changes, in the order they are tried."""
    every = [dict(zip(config.space, values, strict=True)) for values in product(*config.space.values())]
    if config.method == "grid":
        return every
    return random.Random(config.seed).sample(every, min(config.trials, len(every)))


def divide(config: SweepConfig) -> tuple[list[str], list[str]]:
    """Ids of the conversations to train on and of those held back, which all have questions.

    Raises:
        UserError: fewer than two conversations have questions.
    """
    conversations = load_training_data(
        replace(config.train, also=[], named_share=0.0, swapped_share=0.0)
    ).conversations
    asked = sorted(one.id for one in conversations if one.questions)
    if len(asked) < 2:
        raise UserError(f"a sweep needs two conversations with questions; {config.train.task} has {len(asked)} here")
    held = min(len(asked) - 1, math.ceil(config.validation_share * len(asked)))
    validation = sorted(random.Random(config.seed).sample(asked, held))
    return [one.id for one in conversations if one.id not in set(validation)], validation


def run_sweep(config: SweepConfig) -> dict[str, Any]:
    """Run every trial that has no result yet; returns the content of ``results.json``.

    A trial whose settings fail is kept with its error, and the search goes on; the next search tries it again.

    Raises:
        UserError: something in the settings or the data is wrong for all trials.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("a sweep runs in one process: start it with python, or several of them as wandb agents")
    output_dir = Path(config.output_dir)
    check_writable_folder(output_dir, "output_dir")
    trained, validation = divide(config)
    read = _what_is_read(config.train)
    changes = combinations(config)
    found = []
    for number, change in enumerate(changes, start=1):
        train = with_settings(replace(config.train, conversations=trained), change)
        logger.info("trial %d/%d: %s", number, len(changes), _shown(change) or "as it is")
        found.append({"changed": change, **_trial(config, train, validation, read)})
    found.sort(key=lambda one: -math.inf if one[config.figure] is None else one[config.figure], reverse=True)
    results = {
        "figure": config.figure, "method": config.method, "seed": config.seed, "task": config.train.task,
        "validation_conversations": validation, "trials": found,
    }  # fmt: skip
    write_json(output_dir / "results.json", results)
    atomic_write_text(output_dir / "table.md", f"{markdown_grid(sweep_grid(results))}\n")
    if all(trial["error"] for trial in found):
        raise UserError(f"every trial failed, the first with: {found[0]['error']}")
    if found[0][config.figure] is not None:
        best = with_settings(replace(config.train, output_dir=f"{config.output_dir}/best"), found[0]["changed"])
        atomic_write_text(output_dir / "best.yaml", dump_config(best))
    return results


def _what_is_read(train: TrainConfig) -> str:
    """Hash of every conversation that training and validation read, so that other data is another trial."""
    plain = replace(train, named_share=0.0, swapped_share=0.0)
    return hashlib.sha256(repr(load_training_data(plain).conversations).encode()).hexdigest()


def _trial(config: SweepConfig, train: TrainConfig, validation: list[str], read: str) -> dict[str, Any]:
    """Figures of one trial, from its file if it was run before and did not fail."""
    facts = json.dumps([asdict(train), validation, read], sort_keys=True)
    name = f"trial_{hashlib.sha256(facts.encode()).hexdigest()[:10]}"
    folder = Path(config.output_dir) / name
    file = folder / "trial.json"
    if file.is_file():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if found["error"] is None:
            return found
    run = folder / "run"
    try:
        with _same_wandb_run(name, train):
            # a trial that was stopped goes on from its last checkpoint
            going_on = "latest" if (run / "config.yaml").is_file() else None
            final = run_training(replace(train, output_dir=str(run), resume_from_checkpoint=going_on))
            assert final is not None
            figures = _validate(train, final, validation, folder / "eval")
            if train.report_to == "wandb":
                _log_to_wandb(train, figures)
        found = {"folder": name, "error": None, **figures}
    except UserError as error:
        logger.warning("%s failed: %s", name, error)
        found = {"folder": name, "error": str(error), **dict.fromkeys(FIGURES)}
    write_json(file, found)
    return found


def _validate(train: TrainConfig, final: Path, validation: list[str], folder: Path) -> dict[str, Any]:
    outcome = run_evaluation(
        EvalConfig(
            system=["mlmf"], checkpoint=str(final), tasks=[train.task], data_file=train.data_file, probes=train.probes,
            split=training_split(train), allow_unknown_data=train.allow_unknown_data, conversations=validation,
            output_dir=str(folder),
        )
    )  # fmt: skip
    scores = outcome.results[0]["keys"]["raw"]["scores"]
    return {name: scores[name]["mean"] for name in FIGURES}


def sweep_grid(results: dict[str, Any]) -> Grid:
    """One row per trial, best first."""
    settings = list(results["trials"][0]["changed"])
    rows = [
        [
            *(str(trial["changed"][name]) for name in settings),
            *("-" if trial[name] is None else f"{trial[name]:.3f}" for name in FIGURES),
            trial["error"] or trial["folder"],
        ]
        for trial in results["trials"]
    ]
    return [*settings, *FIGURES, "folder"], rows


def _shown(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items())


@contextmanager
def _same_wandb_run(name: str, train: TrainConfig) -> Iterator[None]:
    """Training and validation are one run in wandb, under the agent's id where there is an agent."""
    ours = train.report_to == "wandb" and "WANDB_RUN_ID" not in os.environ
    if ours:
        os.environ |= {"WANDB_RUN_ID": name, "WANDB_RESUME": "allow"}
    try:
        yield
    finally:
        if ours:
            del os.environ["WANDB_RUN_ID"], os.environ["WANDB_RESUME"]


def _log_to_wandb(train: TrainConfig, figures: dict[str, Any]) -> None:
    import wandb

    with wandb.init(project="mlmf", name=train.run_name, resume="allow") as run:
        run.log({f"eval/{name}": value for name, value in figures.items() if value is not None})
