from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from mlmf.model import MLMFModel
from mlmf.training.optimiser import GROUPS, MasterAdamW, cosine_with_warmup, parameter_groups


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Linear(6, 5)
    # stored column by column, as a decomposition leaves its factors
    first.weight = nn.Parameter(first.weight.detach().T.contiguous().T)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(5, 1)).to(dtype)


def groups(net: nn.Module, lr: float = 1e-2) -> list[dict[str, object]]:
    named = list(net.named_parameters())
    parts = {"one": named[:2], "two": named[2:]}
    return [
        {"name": k, "params": [p for _, p in v], "names": [n for n, _ in v], "lr": lr, "weight_decay": 0.1 * i}
        for i, (k, v) in enumerate(parts.items())
    ]


def descend(net: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        net(x.to(next(net.parameters()).dtype)).square().mean().backward()
        optimiser.step()


def test_on_float32_it_is_torchs_adamw() -> None:
    ours, theirs = network(), network()
    plain = [{k: v for k, v in group.items() if k not in ("name", "names")} for group in groups(theirs)]
    optimiser, reference = MasterAdamW(groups(ours)), torch.optim.AdamW(plain)
    for part in (range(5), range(5, 10)):
        descend(ours, optimiser, part)
        descend(theirs, reference, part)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        for one in (optimiser, reference):  # a scheduler writes the rate of the groups
            for group in one.param_groups:
                group["lr"] = 1e-3


def test_steps_too_small_for_bfloat16_add_up() -> None:
    weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimiser = MasterAdamW([{"params": [weight], "names": ["w"], "lr": 1e-4, "weight_decay": 0.0}])
    for _ in range(200):
        weight.grad = torch.ones_like(weight)
        optimiser.step()
    # one step of 1e-4 is lost on 1.0 in bfloat16; two hundred of them are not
    assert weight.dtype == torch.bfloat16
    assert float(weight.detach()) == pytest.approx(0.98, abs=0.004)
    assert float(optimiser.tensors()["w|master"]) == pytest.approx(0.98, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_taken_up_again_it_goes_on_as_if_never_stopped(dtype: torch.dtype) -> None:
    whole = network(dtype)
    descend(whole, MasterAdamW(groups(whole)), range(8))
    first = network(dtype)
    optimiser = MasterAdamW(groups(first))
    descend(first, optimiser, range(4))
    saved = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in optimiser.tensors().items()}
    second = network(dtype)
    resumed = MasterAdamW(groups(second))
    resumed.load_tensors(copy.deepcopy(saved))
    descend(second, resumed, range(4, 8))
    for a, b in zip(second.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_parameter_without_gradient_stays_and_can_be_saved() -> None:
    net = network()
    optimiser = MasterAdamW(groups(net))
    before = net[2].weight.detach().clone()
    net[0](torch.ones(1, 6)).sum().backward()
    optimiser.step()
    assert torch.equal(net[2].weight, before)
    fresh = network()
    MasterAdamW(groups(fresh)).load_tensors(optimiser.tensors())
    assert torch.equal(fresh[0].weight, net[0].weight)


def test_groups_hold_every_trained_parameter_once(make_model: Callable[..., MLMFModel]) -> None:
    model = make_model()
    rates = {"adapter": 1e-4, "copied": 2e-4, "fresh": 2e-3, "find": 5e-4, "mixing": 1e-2, "gate": 5e-2}
    made = {group["name"]: group for group in parameter_groups(model, rates, 0.1)}
    assert {name: group["lr"] for name, group in made.items()} == rates
    assert {name: group["weight_decay"] for name, group in made.items()} == {
        "adapter": 0.1, "copied": 0.1, "fresh": 0.1, "find": 0.1, "mixing": 0.0, "gate": 0.0,
    }  # fmt: skip
    names = [name for group in made.values() for name in group["names"]]
    assert sorted(names) == sorted(name for name, p in model.named_parameters() if p.requires_grad)
    assert all("lora_" in name for name in made["adapter"]["names"])
    assert {name.rsplit(".", 1)[-1] for name in made["gate"]["names"]} >= {"g", "log_beta", "find_weight"}
    assert all(p.numel() == 1 for p in made["gate"]["params"])
    assert "memory.episodic.queries" in made["fresh"]["names"]
    scorer = {f"memory.scorer.{name}" for name, _ in model.memory.scorer.named_parameters()}
    assert set(made["mixing"]["names"]) == scorer - {"memory.scorer.doubt", "memory.scorer.doubt_per_token"}
    assert set(made["find"]["names"]) == {
        f"memory.key_projection.{name}" for name in ("projection", "token.weight", "token.bias")
    }
    assert "memory.nothing" in made["fresh"]["names"]
    assert "memory.fusions.0.q.weight" in made["copied"]["names"]


def test_alphas_of_slots_travel_without_weight_decay(make_model: Callable[..., MLMFModel]) -> None:
    model = make_model(alpha_mode="per_slot")
    groups = parameter_groups(model, dict.fromkeys(GROUPS, 1e-3), 0.1)
    gate = next(group for group in groups if group["name"] == "gate")
    assert "memory.episodic.alpha_logits" in gate["names"]


def test_schedule_rises_from_nothing_and_ends_at_the_floor() -> None:
    factor = cosine_with_warmup(10, 110, floor=0.05)
    assert 0 < factor(0) <= 0.1
    assert [factor(step) for step in range(10)] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factor(10) == pytest.approx(1.0)
    assert factor(60) == pytest.approx(0.525)
    assert factor(110) == pytest.approx(0.05) and factor(200) == pytest.approx(0.05)
    falling = [factor(step) for step in range(10, 111)]
    assert falling == sorted(falling, reverse=True)


def test_schedule_without_warm_up_and_shorter_than_it() -> None:
    assert cosine_with_warmup(0, 10)(0) == pytest.approx(1.0)
    short = cosine_with_warmup(20, 6)
    assert all(0 < short(step) < 0.4 for step in range(6))
