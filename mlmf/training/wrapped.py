"""How the wrapped model is run while its adapters train: its attention, what it keeps, and over how many devices it lies."""

from __future__ import annotations

import logging

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.memory.host import decoder_layers
from mlmf.model import MLMFModel

logger = logging.getLogger(__name__)


def set_up(model: MLMFModel, config: TrainConfig, device: torch.device) -> None:
    """Choose the attention, and whether activations are kept or computed again.

    Raises:
        UserError: the attention that was asked for is not to be had.
    """
    if config.attn_implementation or device.type == "cpu":
        _set_attention(model, config.attn_implementation or "eager")
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()


def _set_attention(model: MLMFModel, name: str) -> None:
    try:
        model.lm.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"attn_implementation {name!r} cannot be used: {reason} Give eager, sdpa or null") from error


def shard_base(objective: nn.Module, model: MLMFModel, device: torch.device, processes: int) -> None:
    """Lay the frozen weights of the wrapped model over all processes; each holds a part and gathers a layer to run it.

    FSDP2 of what never changes: adapters and memory are small, stay whole in every process and are averaged as without,
    so optimiser and checkpoints know nothing of it. Nothing may be read with the model outside of ``objective`` from
    then on.

    Args:
        objective: what is trained, still to be wrapped for data parallelism.
        model: the model in it.
        device: of this process.
        processes: how many there are.
    """
    mesh = init_device_mesh(device.type, (processes,))
    trained = {parameter for parameter in model.lm.parameters() if parameter.requires_grad}
    for layer in decoder_layers(model.lm):
        fully_shard(layer, mesh=mesh, ignored_params=trained)
    fully_shard(model.lm, mesh=mesh, ignored_params=trained)
    sharded = {name: one for name, one in objective.named_parameters() if isinstance(one, DTensor)}
    logger.info(
        "the wrapped model lies over %d processes: %.1f M of its %.1f M frozen parameters here",
        processes,
        sum(one.to_local().numel() for one in sharded.values()) / 1e6,
        sum(one.numel() for one in sharded.values()) / 1e6,
    )
    # else it would copy the parts of the first process to all others
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(objective, list(sharded))
