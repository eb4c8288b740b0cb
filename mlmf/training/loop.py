"""The training loop: one optimiser step after another, through accelerate."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mlmf import checkpoint
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.paths import cache_dir
from mlmf.training.batching import Counts
from mlmf.training.calibration import calibrate
from mlmf.training.data import TrainingData
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.find_objective import FindObjective
from mlmf.training.interrupts import Interrupts
from mlmf.training.objective import Losses, Objective
from mlmf.training.optimiser import MasterAdamW, cosine_with_warmup, parameter_groups
from mlmf.training.run_folder import RunFolder
from mlmf.training.step_batches import StepBatches
from mlmf.training.wrapped import set_up, shard_base
from mlmf.types import Conversation

logger = logging.getLogger(__name__)


MAY_DIFFER = frozenset(
    {
        "output_dir", "overwrite_output_dir", "resume_from_checkpoint", "save_steps", "save_total_limit", "logging_steps",
        "report_to", "run_name", "dry_run", "attn_implementation", "data_file", "probes", "init_from",
        "gradient_checkpointing", "shard_base",
    }
)  # fmt: skip
"""Settings that a resumed run may change: none of them changes a step, and the data is compared by content."""


class Trainer:
    """Trains a model on conversations and leaves ``final/`` in the output folder."""

    def __init__(self, config: TrainConfig, model: MLMFModel, data: TrainingData, config_yaml: str) -> None:
        """Prepare data, optimiser and processes; reads and caches the sessions that have no features yet."""
        self.config, self.read_ids = config, data.ids
        set_seed(config.seed)
        self.accelerator = Accelerator(
            cpu=PartialState().device.type == "cpu",
            log_with="wandb" if config.report_to == "wandb" else None,
            project_dir=config.output_dir,
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        )
        self.model = model
        self.folder = RunFolder(Path(config.output_dir))
        self.config_yaml = config_yaml
        set_up(model, config, self.accelerator.device)
        self.features = FeatureCache(model, cache_dir())
        self.batches = StepBatches(config, data.conversations, model, self.features, self.accelerator)
        self._read_sessions(data.conversations)
        model.queries.keep(self.batches.examples["query"])
        objective = (
            Objective(model, config.tbptt_sessions, config.entropy_weight, config.evidence_weight)
            if config.generate
            else FindObjective(model)
        )
        if config.shard_base and self.accelerator.num_processes > 1:
            shard_base(objective, model, self.accelerator.device, self.accelerator.num_processes)
        self.objective = self.accelerator.prepare(objective)
        rates = {
            "adapter": config.learning_rate, "copied": config.copied_learning_rate, "fresh": config.fresh_learning_rate,
            "find": config.find_learning_rate, "mixing": config.mixing_learning_rate,
            "gate": config.gate_learning_rate,
        }  # fmt: skip
        groups = parameter_groups(model, rates, config.weight_decay)
        self.optimiser = MasterAdamW(groups)
        self.rates = [group["lr"] for group in groups]
        self.schedule = cosine_with_warmup(config.warmup_steps, self.batches.total)
        self.earlier_stages = [] if config.init_from is None else checkpoint.training_stages(config.init_from)
        self.stop_requested = False

    # ---------------------------------------------------------------- sessions

    def _read_sessions(self, conversations: Sequence[Conversation]) -> None:
        sessions = [session for conversation in conversations for session in conversation.sessions]
        if self.config.init_from is None:
            with self.accelerator.main_process_first():
                calibrate(self.model, sessions, cache_dir())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        if self.accelerator.is_main_process:
            began = time.perf_counter()
            if not sys.stderr.isatty():
                logger.info("reading the sessions that are not in the cache, of %d", len(sessions))
            with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
                tokens = self.features.fill(sessions, progress)
            seconds = time.perf_counter() - began
            if tokens:
                logger.info(
                    "read %s tokens of sessions in %.0f s, %.0f tokens/s", f"{tokens:,}", seconds, tokens / seconds
                )
        self.accelerator.wait_for_everyone()

    # ---------------------------------------------------------------- steps

    def step(self, step: int) -> tuple[Losses, int]:
        """One optimiser step; returns its losses over all batches and processes, and the tokens this process read, shown lines apart."""
        config, accelerator = self.config, self.accelerator
        batches = self.batches(step)
        in_step = torch.tensor([batch.counts for batch in batches], device=accelerator.device).sum(0)
        count = len(batches) * accelerator.num_processes
        per_batch = Counts(*(accelerator.reduce(in_step, "sum") / count).tolist())
        ramp = config.lambda_ramp_steps
        lambda_ret = config.lambda_ret * (1.0 if ramp == 0 else min(1.0, step / ramp))
        self.objective.train()
        parts: list[tuple[Losses, Counts]] = []
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with nullcontext() if last else accelerator.no_sync(self.objective):
                part: Losses = self.objective(batch, lambda_ret, per_batch)
                accelerator.backward(part.total / len(batches))
            parts.append((part, batch.counts))
        # over all processes: if the loss of one is not finite, all stop here and none waits for it
        losses = self._over_step(parts)
        if not math.isfinite(losses.total.item()):
            raise UserError(
                f"the loss is {losses.total.item()} at step {step + 1}: lower learning_rate or gate_learning_rate; "
                f"the last checkpoint is in {self.folder.checkpoints}"
            )
        accelerator.clip_grad_norm_(self.objective.parameters(), config.max_grad_norm)
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.schedule(step)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return losses, sum(batch.n_tokens for batch in batches)

    def _over_step(self, parts: Sequence[tuple[Losses, Counts]]) -> Losses:
        """The losses of a step from those of its batches and processes, each a mean over what it is counted by."""
        rows = [
            [
                *counts, counts.labels * one.gen, counts.examples * one.ret, counts.evidence * one.evi,
                counts.tokens * one.hinge, one.sought, one.found, one.total.item(), one.spread, one.nodes, *one.gates,
            ]
            for one, counts in parts
        ]  # fmt: skip
        sums = torch.tensor(rows, device=self.accelerator.device).sum(0)
        examples, labels, known, tokens, gen, ret, evi, hinge, sought, found, *others = self.accelerator.reduce(
            sums, "sum"
        ).tolist()
        count = len(parts) * self.accelerator.num_processes
        total, spread, nodes, *gates = (value / count for value in others)
        return Losses(
            torch.tensor(total), gen / labels, ret / examples, evi / max(1.0, known), hinge / tokens,
            round(sought), round(found), gates, spread, nodes,
        )  # fmt: skip

    def train(self) -> Path:
        """Run to the end, or to Ctrl-C; returns the folder of the final model.

        Raises:
            KeyboardInterrupt: stopped by the user, after the state was saved.
        """
        config = self.config
        start = 0
        resuming = config.resume_from_checkpoint is not None
        if self.accelerator.is_main_process:
            self.folder.prepare(resume=resuming, overwrite=config.overwrite_output_dir)
        self.accelerator.wait_for_everyone()
        if resuming and (found := self.folder.find(str(config.resume_from_checkpoint))):
            start = self.folder.load(found, self.model, self.optimiser, self._facts())
            logger.info("resuming from %s at step %d", found, start)
        if self.accelerator.is_main_process:
            self.folder.describe(self.config_yaml, self._facts())
            self.folder.truncate_log(start)
        if config.report_to == "wandb":
            names = {"wandb": {"name": config.run_name, "dir": config.output_dir}}
            self.accelerator.init_trackers("mlmf", config=asdict(config), init_kwargs=names)
        with Interrupts(self._request_stop):
            self._steps(start)
        if self.accelerator.is_main_process and not self.stop_requested:
            self.model.eval()
            checkpoint.save(self.model, self.folder.final, self._facts())
        self.accelerator.wait_for_everyone()
        # last: it also ends the group of processes
        self.accelerator.end_training()
        if self.stop_requested:
            raise KeyboardInterrupt
        return self.folder.final

    def _steps(self, start: int) -> None:
        config = self.config
        window: list[Losses] = []
        tokens, began, first = 0, time.perf_counter(), time.perf_counter()
        for step in range(start, self.batches.total):
            losses, read = self.step(step)
            window.append(losses)
            tokens += read
            done = step + 1
            if done % config.logging_steps == 0 or done == self.batches.total:
                now = time.perf_counter()
                left = (now - first) / (done - start) * (self.batches.total - done)
                self._log(done, window, tokens / (now - began), left)
                window, tokens, began = [], 0, now
            stopping = self._anyone_stops()
            if stopping or (config.save_steps and done % config.save_steps == 0 and done < self.batches.total):
                self._save(done)
            if stopping:
                self.stop_requested = True  # on every process, whichever of them was asked
                return

    def _log(self, step: int, window: Sequence[Losses], tokens_per_s: float, left_s: float) -> None:
        def mean(name: str) -> float:
            return sum(getattr(losses, name) for losses in window) / len(window)

        gates = [sum(losses.gates[i] for losses in window) / len(window) for i in range(3)]
        found = sum(losses.found for losses in window) / max(1, sum(losses.sought for losses in window))
        rate = self.optimiser.param_groups[0]["lr"]
        opened = self.model.memory.openings()
        tokens_per_s *= self.accelerator.num_processes
        # trackers show a chart group for each prefix
        record = {
            "step": step, "loss/total": float(mean("total")), "loss/gen": mean("gen"), "loss/ret": mean("ret"),
            "loss/evi": mean("evi"), "loss/hinge": mean("hinge"),
            "gates/working": gates[0], "gates/episodic": gates[1], "gates/semantic": gates[2],
            "gates/opening": sum(map(abs, opened)) / len(opened), "gates/beta": self.model.memory.sharpness(),
            "nodes/count": mean("nodes"), "nodes/found": found, "nodes/spread": mean("spread"),
            "optimiser/learning_rate": rate, "perf/tokens_per_s": tokens_per_s,
        }  # fmt: skip
        if not self.accelerator.is_main_process:
            return
        with self.folder.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.accelerator.log({k: v for k, v in record.items() if k != "step" and v is not None}, step=step)
        logger.info(
            "step %d/%d | loss %.3f (gen %.3f ret %.4f evi %.2f) | found %.2f | gates w %.2f e %.2f s %.2f open %.2f | lr %.1e "
            "| %.0f tok/s | %s left",
            step, self.batches.total, record["loss/total"], mean("gen"), mean("ret"), mean("evi"), found, *gates,
            record["gates/opening"], rate, tokens_per_s, _minutes(left_s),
        )  # fmt: skip

    def _save(self, step: int) -> None:
        if self.accelerator.is_main_process:
            folder = self.folder.save(self.model, self.optimiser, step, self._facts(), self.config.save_total_limit)
            logger.info("saved %s", folder)
        self.accelerator.wait_for_everyone()

    def _facts(self) -> dict[str, Any]:
        """What must agree between a checkpoint and the run that takes it up; kept in the model's ``config.json``."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in MAY_DIFFER}
        return {
            **settings,
            # whoever scores the model refuses to do it on these, and on those of the stages before
            "conversation_ids": self.read_ids,
            "earlier_stages": self.earlier_stages,
            "examples": len(self.batches.examples),
            "examples_fingerprint": self.batches.fingerprint,
            "total_steps": self.batches.total,
            "processes": self.accelerator.num_processes,
        }

    # ---------------------------------------------------------------- stopping

    def _request_stop(self) -> bool:
        """Stop after the running step; false where that was asked before."""
        if self.stop_requested:
            return False
        self.stop_requested = True
        return True

    def _anyone_stops(self) -> bool:
        """True on every process once any of them was asked to stop."""
        if self.accelerator.num_processes == 1:
            return self.stop_requested
        flag = torch.tensor(float(self.stop_requested), device=self.accelerator.device)
        return bool(self.accelerator.reduce(flag, "sum").item())


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
