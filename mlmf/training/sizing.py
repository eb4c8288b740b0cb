"""What a training run needs, told without the weights of the wrapped model: its shapes, parameters, memory and steps.

The model is built on torch's meta device, where tensors have a shape and no numbers, and one forward pass there says
exactly which activations are kept for the backward pass. What is estimated is the longest prompt, from its letters; what
writing the memory keeps is small and left out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from mlmf.architectures import hollow_model
from mlmf.config.training import TrainConfig
from mlmf.memory.fusion import MemoryBank
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_tokenizer
from mlmf.training.examples import Example, build_examples
from mlmf.training.optimiser import GROUPS, parameter_groups
from mlmf.training.step_batches import step_counts
from mlmf.types import Conversation

logger = logging.getLogger(__name__)

LETTERS_PER_TOKEN = 3
"""Fewer than the four or so of English text, so that the longest prompt is rather over- than underestimated."""
OPTIMISER_BYTES = 12
"""Of a trained number: its float32 master and two moments."""


@dataclass(frozen=True)
class Sizes:
    """What one process of a run holds and does."""

    layers: int
    width: int
    fusion_layers: list[int]
    base: int
    """Parameters of the wrapped model."""
    trained: dict[str, int]
    """Trained parameters by group of the optimiser."""
    prompt_tokens: int
    """Of the longest prompt with its answer, at :data:`LETTERS_PER_TOKEN`."""
    memory: dict[str, int]
    """Bytes on one device while it trains, by what they are for."""
    examples: int
    steps_per_epoch: int
    total_steps: int


def size_up(config: TrainConfig, conversations: Sequence[Conversation], processes: int = 1) -> Sizes:
    """Plan the run that ``config`` describes.

    Args:
        config: settings of the run; its base model need not be here.
        conversations: what it trains on.
        processes: that share the examples, and with ``shard_base`` the wrapped model.

    Raises:
        UserError: nothing to train on, or nothing is known of the base model's sizes.
    """
    examples = build_examples(
        conversations, config.objectives, gaps_per_session=config.gaps_per_session, seed=config.seed
    )
    lm = hollow_model(config.model.base_model)
    base = sum(parameter.numel() for parameter in lm.parameters())
    with torch.device("meta"):
        model = MLMFModel(lm, tiny_tokenizer(), config.model).train()
    groups = parameter_groups(model, dict.fromkeys(GROUPS, 0.0), 0.0)
    trainable = [parameter for group in groups for parameter in group["params"]]
    base_bytes = sum(p.numel() * p.element_size() for p in model.parameters() if not p.requires_grad)
    trained_bytes = sum(parameter.numel() * parameter.element_size() for parameter in trainable)
    prompt_tokens = _prompt_tokens(config, examples)
    steps_per_epoch, total_steps = step_counts(config, len(examples), processes)
    return Sizes(
        layers=lm.config.num_hidden_layers,
        width=lm.config.hidden_size,
        fusion_layers=model.fusion_layers,
        base=base,
        trained={group["name"]: sum(p.numel() for p in group["params"]) for group in groups},
        prompt_tokens=prompt_tokens,
        memory={
            "wrapped model": base_bytes // (processes if config.shard_base else 1),
            "trained weights": trained_bytes,
            "gradients": trained_bytes,
            "optimiser": OPTIMISER_BYTES * sum(parameter.numel() for parameter in trainable),
            "activations": activation_bytes(
                model,
                config.per_device_train_batch_size,
                prompt_tokens,
                min(prompt_tokens, config.max_target_tokens),
                config.gradient_checkpointing,
            ),
        },
        examples=len(examples),
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
    )


def activation_bytes(model: MLMFModel, batch_size: int, tokens: int, labels: int, checkpointing: bool) -> int:
    """Bytes kept for the backward pass of one batch on a model without numbers, memory full and read to its limit.

    Args:
        model: on the meta device, training.
        batch_size: rows.
        tokens: of each row.
        labels: the last of them, for which there are logits.
        checkpointing: one layer at a time runs again in backward; its share of what is kept without is added.
    """
    kept = _kept_bytes(model, batch_size, tokens, labels)
    if not checkpointing:
        return kept
    depth = model.lm.config.num_hidden_layers
    model.gradient_checkpointing_enable()
    return _kept_bytes(model, batch_size, tokens, labels) + kept // depth


def _kept_bytes(model: MLMFModel, batch_size: int, tokens: int, labels: int) -> int:
    config = model.config
    sizes = (config.c_w, config.c_e, min(config.c_m, 2 * config.recall_nodes * config.node_tokens))
    meta: dict[str, Any] = {"device": "meta"}
    states = torch.empty(
        batch_size, len(model.fusion_layers), sum(sizes), model.lm.config.hidden_size, dtype=model.lm.dtype, **meta
    )
    bank = MemoryBank(
        (states.requires_grad_(),),
        torch.ones(batch_size, sum(sizes), dtype=torch.bool, **meta),
        torch.zeros(batch_size, sum(sizes), **meta),
        sizes,
    )
    held = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []  # a storage that was freed would lend its address to another

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        storage = tensor.untyped_storage()
        if storage._cdata not in held:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    ids = torch.zeros(batch_size, tokens, dtype=torch.long, **meta)
    # four-dimensional, because transformers would look at the values of a plain one
    mask = torch.ones(batch_size, 1, tokens, tokens, dtype=torch.bool, **meta)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), model.hooks.reading_from(bank):
        output = model.lm(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=labels)
        # of which the loss keeps the log-probabilities, in float32
        output.logits.float().log_softmax(-1)
    return sum(kept.values())


def _prompt_tokens(config: TrainConfig, examples: Sequence[Example]) -> int:
    def tokens(text: str, limit: int) -> int:
        return min(limit, math.ceil(len(text) / LETTERS_PER_TOKEN))

    return max(
        tokens(one.prompt, config.max_reply_context) + tokens(one.target, config.max_target_tokens) for one in examples
    )


def sizes_table(name: str, sizes: Sizes) -> Table:
    """What :func:`size_up` found, for the terminal."""
    table = Table("what", "size", title=f"{name}, without its weights")
    table.add_row("decoder layers, width", f"{sizes.layers}, {sizes.width}")
    table.add_row("memory is read before layers", ", ".join(map(str, sizes.fusion_layers)))
    table.add_row("parameters of the wrapped model", f"{sizes.base:,}")
    for group, count in sizes.trained.items():
        table.add_row(f"trained: {group}", f"{count:,}")
    table.add_row("trained, all", f"{sum(sizes.trained.values()):,}", end_section=True)
    for what, size in sizes.memory.items():
        table.add_row(f"memory: {what}", f"{size / 2**30:.2f} GiB")
    table.add_row(
        f"memory of a device, about ({sizes.prompt_tokens} tokens a row)",
        f"{sum(sizes.memory.values()) / 2**30:.1f} GiB",
        end_section=True,
    )
    table.add_row("examples", f"{sizes.examples:,}")
    table.add_row("optimiser steps (an epoch)", f"{sizes.total_steps:,} ({sizes.steps_per_epoch:,})")
    return table
