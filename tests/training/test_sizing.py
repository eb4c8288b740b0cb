"""Planning without weights: the sizes of the recipes' models, and how near the plan is to what a real model holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mlmf.architectures import architecture
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.parse import parse_config
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.memory.fusion import MemoryBank
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.training.sizing import activation_bytes, size_up
from mlmf.types import Conversation

RECIPES = Path(__file__).parents[2] / "configs" / "train"
PARAMETERS = {
    "smollm2_1.7b": 1_711_376_384,
    "qwen3_4b": 4_022_468_096,
    "llama3.1_8b": 8_030_261_248,
}
"""As their model cards say: 1.7 B, 4.0 B, 8.03 B."""


def recipe(name: str) -> TrainConfig:
    return parse_config(TrainConfig, ["--config", str(RECIPES / f"{name}.yaml")], prog="train.py", description="")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_recipe_is_planned_without_weights(name: str, conversations: Sequence[Conversation]) -> None:
    config = replace(recipe(name), objectives=["answer"])
    sizes = size_up(config, conversations, processes=2)
    shape = architecture(config.model.base_model)
    assert sizes.base == PARAMETERS[name]
    heads, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    width, inner = shape.hidden_size, shape.intermediate_size
    linears = [(width, heads), (width, kv), (width, kv), (heads, width), *[(width, inner)] * 2, (inner, width)]
    rank = config.model.lora.r
    adapted = shape.num_hidden_layers - sizes.fusion_layers[0]  # no gradient goes below the first read
    assert sizes.trained["adapter"] == adapted * sum(rank * (a + b) for a, b in linears)
    attention = sum(a * b for a, b in linears[:4])
    assert sizes.trained["copied"] == pytest.approx(len(sizes.fusion_layers) * attention, rel=1e-3)
    trained = sum(sizes.trained.values())
    assert sizes.memory["optimiser"] == 12 * trained and sizes.memory["gradients"] >= 2 * trained
    share = 2 if config.shard_base else 1
    assert sizes.memory["wrapped model"] == pytest.approx(2 * sizes.base / share, rel=0.02)
    assert sizes.examples == 10 and sizes.steps_per_epoch == 1  # 2 processes x 16 are more than 10
    assert sizes.total_steps == config.num_train_epochs


def test_the_plan_keeps_what_a_real_forward_pass_keeps() -> None:
    config = MLMFConfig(lora=LoraSettings(r=4), recall_nodes=2, node_tokens=8, c_m=64)
    sizes = (config.c_w, config.c_e, 2 * config.recall_nodes * config.node_tokens)
    model = MLMFModel(tiny_model("llama"), tiny_tokenizer(), config).train()
    with torch.device("meta"):
        hollow = MLMFModel(tiny_model("llama").to("meta"), tiny_tokenizer(), config).train()
    states = torch.randn(3, len(model.fusion_layers), sum(sizes), 64, requires_grad=True)
    bank = MemoryBank((states,), torch.ones(3, sum(sizes)).bool(), torch.zeros(3, sum(sizes)), sizes)
    held = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    mask = torch.ones(3, 1, 20, 20).tril().bool()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), model.hooks.reading_from(bank):
        logits = model.lm(torch.ones(3, 20, dtype=torch.long), mask, use_cache=False, logits_to_keep=5).logits
        logits.float().log_softmax(-1)
    planned = activation_bytes(hollow, 3, 20, 5, checkpointing=False)
    assert planned == pytest.approx(sum(kept.values()), rel=0.05)
    assert activation_bytes(hollow, 3, 20, 5, checkpointing=True) < planned


def test_a_model_nobody_knows_is_named() -> None:
    with pytest.raises(UserError, match=r"base_model 'nobody/nothing-7b' is not here.*Qwen/Qwen3-4B"):
        architecture("nobody/nothing-7b")
