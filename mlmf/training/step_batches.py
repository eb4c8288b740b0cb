"""What each optimiser step learns from: its examples, and how many other sessions and shown lines go with them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from accelerate import Accelerator

from mlmf.abstention import ABSTENTION
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.paths import cache_dir
from mlmf.training.batching import Batch, Collator, Untold, epoch_order
from mlmf.training.examples import build_examples, target_ids, tokenise
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.types import Conversation


class StepBatches:
    """This process's batches of any optimiser step.

    They are a function of the settings, the data and the number of the step alone: resuming needs no bookkeeping.
    """

    def __init__(
        self,
        config: TrainConfig,
        conversations: Sequence[Conversation],
        model: MLMFModel,
        features: FeatureCache,
        accelerator: Accelerator,
    ) -> None:
        """Build and tokenise the examples; sessions are read when a step first needs them.

        Raises:
            UserError: nothing to train on, or shown lines and the rest are longer than the model's window.
        """
        longest = config.shown_tokens + config.max_reply_context + config.max_target_tokens
        if config.shown_share and longest > model.encoder.window:
            raise UserError(
                f"shown_tokens {config.shown_tokens}, max_reply_context {config.max_reply_context} and max_target_tokens "
                f"{config.max_target_tokens} exceed the window of {config.model.base_model}, {model.encoder.window} tokens: "
                "lower one, or set shown_share to 0"
            )
        self.config, self.accelerator = config, accelerator
        tokenizer = model.tokenizer
        self.examples, self.fingerprint = tokenise(
            build_examples(
                conversations, config.objectives, gaps_per_session=config.gaps_per_session, seed=config.seed
            ),
            tokenizer, cache_dir(),
            max_prompt_tokens=config.max_reply_context, max_target_tokens=config.max_target_tokens,
        )  # fmt: skip
        untold = Untold(config.untold_share, target_ids(ABSTENTION, tokenizer, config.max_target_tokens))
        self.collator = Collator(
            conversations,
            FeatureMemory(features),
            config.seed,
            tokenizer.pad_token_id,
            # a whole history holds what answers
            untold=untold if config.generate else None,
            whole=not config.generate,
        )
        self.per_epoch, self.total = step_counts(config, len(self.examples), accelerator.num_processes)

    def __call__(self, step: int) -> list[Batch]:
        """The batches of step ``step``, counted from 0 over all epochs; every process gets as many."""
        config = self.config
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        epoch, within = divmod(step, self.per_epoch)
        self.collator.distractors, self.collator.shown_tokens = self._distractors(step), self._shown_tokens(step)
        round_size = config.per_device_train_batch_size * processes
        step_size = round_size * config.gradient_accumulation_steps
        indices = self._order(epoch)[within * step_size : (within + 1) * step_size]
        batches = []
        for start in range(0, len(indices), round_size):
            everyone = indices[start : start + round_size]
            mine = everyone[len(everyone) * rank // processes : len(everyone) * (rank + 1) // processes]
            # where the last round of an epoch has fewer examples than processes, one is repeated: all must take part
            part = mine or everyone[:1]
            batches.append(self.collator([{**self.examples[i], "index": i, "epoch": epoch} for i in part]))
        return batches

    def _order(self, epoch: int) -> list[int]:
        together = 1 if self.config.generate else self.config.per_device_train_batch_size
        return epoch_order(self.examples["conversation"], self.config.seed * 100_003 + epoch, together)

    def _distractors(self, step: int) -> int:
        ramp = self.config.distractor_ramp * self.total
        grown = 1.0 if ramp == 0 else min(1.0, step / ramp)
        return round(self.config.distractor_sessions * grown)

    def _shown_tokens(self, step: int) -> int:
        """Budget of recalled lines: mostly none, or some part of the largest, so that one model answers with any."""
        draw, largest = random.Random(f"shown {self.config.seed} {step}"), self.config.shown_tokens
        return draw.randint(largest // 4, largest) if draw.random() < self.config.shown_share else 0


def step_counts(config: TrainConfig, examples: int, processes: int) -> tuple[int, int]:
    """Optimiser steps of one epoch over ``examples``, and of the whole run."""
    per_step = config.per_device_train_batch_size * config.gradient_accumulation_steps * processes
    per_epoch = math.ceil(examples / per_step)
    return per_epoch, config.max_steps or config.num_train_epochs * per_epoch
