"""From settings to a trained model: load the data and the model, train, say where everything is."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from rich.console import Console

from mlmf.base_model import base_is_here
from mlmf.config.parse import dump_config
from mlmf.config.training import TrainConfig
from mlmf.model import MLMFModel
from mlmf.training.data import load_training_data
from mlmf.training.loop import Trainer
from mlmf.training.run_folder import RunFolder
from mlmf.training.sizing import size_up, sizes_table

logger = logging.getLogger(__name__)

SCORED_ON = {"locomo": "locomo", "recall": "recall"}
"""The evaluation task that goes with a training task; the others are scored on LOCCO."""


def run_training(config: TrainConfig) -> Path | None:
    """Train as ``config`` says; returns the folder of the final model, or ``None`` after a dry run."""
    resuming = config.resume_from_checkpoint is not None
    if not config.dry_run:
        # before anything slow: a run that may not write its folder should say so at once
        folder = RunFolder(Path(config.output_dir))
        folder.check(resume=resuming, overwrite=config.overwrite_output_dir)
        if config.resume_from_checkpoint not in (None, "latest"):
            folder.find(str(config.resume_from_checkpoint))
    data = load_training_data(config)
    # accelerate joins processes that have no GPU only where it is told that they have none
    on_cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    process = PartialState(cpu=on_cpu)
    device = str(process.device)  # each process of a launch has its own
    if process.num_processes == 1 and {"MASTER_ADDR", "ACCELERATE_USE_CPU"} <= os.environ.keys():
        logger.warning(
            "accelerate launch --cpu started one process, whatever --num_processes says; for several without a GPU: "
            "torchrun --nproc_per_node 2 train.py ..."
        )
    if not process.is_main_process:
        logging.getLogger("mlmf").setLevel(logging.WARNING)
    if config.dry_run and config.init_from is None and not base_is_here(config.model.base_model):
        sizes = size_up(config, data.conversations, process.num_processes)
        if process.is_main_process:
            Console().print(sizes_table(config.model.base_model, sizes))
        return None
    if config.init_from is not None:
        model = MLMFModel.from_pretrained(config.init_from, device=device)
        for name in ("recall_nodes", "recall_tokens", "abstain_from"):
            setattr(model.config, name, getattr(config.model, name))
    else:
        model = MLMFModel.from_base(config.model.base_model, config.model, device=device)
    trainer = Trainer(config, model, data, dump_config(config))
    counts = (
        sum(p.numel() for p in model.parameters() if p.requires_grad),
        sum(p.numel() for p in model.parameters()),
    )
    logger.info(
        "%s: %d conversations, %d examples, %d steps (%d an epoch); %.1f M of %.1f M parameters trained on %s",
        config.task, len(data.conversations), len(trainer.batches.examples),
        trainer.batches.total, trainer.batches.per_epoch,
        counts[0] / 1e6, counts[1] / 1e6, trainer.accelerator.device,
    )  # fmt: skip
    if config.dry_run:
        losses, tokens = trainer.step(0)
        logger.info("dry run: one step of %d tokens, loss %.3f; nothing was saved", tokens, losses.total.item())
        return None
    final = trainer.train()
    if trainer.accelerator.is_main_process:
        logger.info("model: %s", final)
        # a model is not scored on what it was trained on
        scored = "jsonl --data_file OTHERS.jsonl" if config.task == "jsonl" else SCORED_ON.get(config.task, "locco")
        if config.task == "locomo":
            scored += " --conversations OTHERS"
        logger.info("score it: python evaluate.py --system mlmf --checkpoint %s --task %s", final, scored)
    return final
