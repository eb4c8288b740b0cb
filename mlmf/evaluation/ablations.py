"""``--ablations table5``: what each part of the trained memory is worth, from one checkpoint for each variant and seed.

A variant is a system of its own (``mlmf_no_semantic``), so its answers, scores and costs lie where every system's lie. Here
is what makes them comparable: the same training but for one switch, and paired tests of each against the full memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlmf.checkpoint import CONFIG, read_config, training_stages
from mlmf.config.evaluation import EvalConfig
from mlmf.config.parse import parse_config
from mlmf.config.training import TrainConfig
from mlmf.config.variants import FULL, TABLES, variant_of, variant_systems
from mlmf.errors import UserError
from mlmf.evaluation.asking import load_questions
from mlmf.evaluation.compare import Run, compare_runs

logger = logging.getLogger(__name__)


def train_variants(config: EvalConfig, train: Callable[[TrainConfig], object]) -> EvalConfig:
    """Train every variant under every seed by the stages of ``ablation_training``, each stage from the one before.

    A stage that an earlier run finished under the same settings is taken as it is; one that was stopped goes on.

    Args:
        config: of the evaluation.
        train: runs a training, as :func:`mlmf.training.run.run_training` does.

    Returns:
        The settings of the evaluation with the trained checkpoints in them.

    Raises:
        UserError: a file of settings is wrong, a folder holds a training of other settings, or the questions that come
            after the training cannot be asked.
    """
    assert config.ablations is not None and config.ablation_training
    for task in config.task_names:
        load_questions(task, config)
    stages = [_stage(file, first=not number) for number, file in enumerate(config.ablation_training)]
    home = Path(config.output_dir) / "training"
    for seed in config.seeds:
        for variant, switched in TABLES[config.ablations].items():
            switches: dict[str, Any] = dict(switched)
            previous = None
            for number, stage in enumerate(stages):
                folder = home / variant / f"seed_{seed}" / f"stage_{number}"
                wanted = replace(
                    stage,
                    model=replace(stage.model, **dict[str, Any](switches)),
                    seed=seed,
                    init_from=previous,
                    output_dir=str(folder),
                    overwrite_output_dir=False,
                    resume_from_checkpoint="latest",
                )
                if not _is_finished(folder, wanted):
                    logger.info("training %s, seed %d, stage %d of %d", variant, seed, number + 1, len(stages))
                    train(wanted)
                previous = str(folder / "final")
    checkpoint = str(home / "{variant}" / "seed_{seed}" / f"stage_{len(stages) - 1}" / "final")
    return replace(config, checkpoint=checkpoint, ablation_training=None)


def _stage(file: str, *, first: bool) -> TrainConfig:
    stage = parse_config(TrainConfig, ["--config", file], prog="train.py", description="")
    if stage.dry_run:
        raise UserError(f"ablation_training {file}: dry_run is true, so nothing would be trained")
    if first and stage.init_from is not None:
        raise UserError(
            f"ablation_training {file}: init_from is {stage.init_from}, and a checkpoint keeps the parts it has; give the "
            "settings of every stage, the first one without init_from"
        )
    return stage


def _is_finished(folder: Path, wanted: TrainConfig) -> bool:
    """Whether a folder holds the final model of a training; one of other settings is refused."""
    written = folder / "config.yaml"
    if written.is_file() and not _same_training(
        parse_config(TrainConfig, ["--config", str(written)], prog="train.py", description=""), wanted
    ):
        raise UserError(f"{written}: a training with other settings; remove {folder}, or give another --output_dir")
    return (folder / "final" / CONFIG).is_file()


def _same_training(one: TrainConfig, other: TrainConfig) -> bool:
    """Whether two trainings differ in nothing but the way their folders are spelt."""
    return _resolved(one) == _resolved(other)


def _resolved(config: TrainConfig) -> TrainConfig:
    started = None if config.init_from is None else str(Path(config.init_from).resolve())
    return replace(config, output_dir=str(Path(config.output_dir).resolve()), init_from=started)


def check_variants(config: EvalConfig) -> None:
    """Check that each checkpoint is the variant it is taken for, trained as the full memory of its seed was.

    Raises:
        UserError: names the checkpoint, and what it has that it should not have.
    """
    assert config.ablations is not None
    for seed in config.seeds:
        full = {fold: str(part.checkpoint) for fold, part in config.parts(variant_systems(config.ablations)[0], seed)}
        for system in variant_systems(config.ablations):
            switches = TABLES[config.ablations][str(variant_of(system))]
            for fold, part in config.parts(system, seed):
                assert part.checkpoint is not None
                _check_switches(part.checkpoint, config.ablations, switches)
                _check_training(part.checkpoint, full[fold])


def _check_switches(checkpoint: str, table: str, switches: dict[str, bool]) -> None:
    model = read_config(checkpoint)
    for name in {name: None for other in TABLES[table].values() for name in other}:
        wanted = switches.get(name, True)
        if getattr(model, name) != wanted:
            raise UserError(
                f"checkpoint {checkpoint}: {name} is {str(not wanted).lower()}, so it is not the variant it is taken for; "
                f"train it with --model.{name} {str(wanted).lower()}"
            )


def _check_training(checkpoint: str, full: str) -> None:
    ours, theirs = ([_without_model(stage) for stage in training_stages(path)] for path in (checkpoint, full))
    if ours == theirs:
        return
    differing = next(
        (name for one, other in zip(ours, theirs, strict=False) for name in one if one[name] != other.get(name)),
        "the number of stages",
    )
    raise UserError(
        f"checkpoint {checkpoint}: not trained as {full} was ({differing} differs), so the two say nothing about one part "
        "of the memory; train both on the same data, for the same steps, under the same seed"
    )


def _without_model(stage: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stage.items() if name != "model"}


def compare_ablations(runs: Sequence[Run], seed: int) -> list[dict[str, Any]]:
    """Each variant against the full memory on the same questions, corrected over the variants by Holm.

    Returns:
        As :func:`mlmf.evaluation.compare.compare_runs`; none where no variants were asked.
    """
    variants = [run for run in runs if variant_of(run.label) is not None]
    # the full memory goes first, so that a difference is what leaving a part out does
    variants.sort(key=lambda run: variant_of(run.label) != FULL)
    return compare_runs(variants, seed, against=next((run.label for run in variants), None))
