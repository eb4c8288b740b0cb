"""AdamW for weights in bfloat16: float32 masters are updated and copied back, so that small steps are not lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

GATE_NAMES = ("g", "log_beta", "find_weight", "alpha_logits", "doubt", "doubt_per_token")
"""Numbers that must travel far in a few hundred steps: their own learning rate, no weight decay."""
MIXING_PARTS = ("memory.scorer.",)
"""What each part of the find score counts: slower than gates, since a few easy memories would soon turn the weight of a
part against it that harder ones need. No weight decay either."""
FRESH_NAMES = (
    "episodic.queries",
    "semantic.message.weight",
    "semantic.salience.weight",
    "memory.nothing",
    "memory.whose",
)
"""Weights that start from nothing pretrained and may move faster than copies."""
FIND_PARTS = ("memory.key_projection.",)
"""What makes keys of states and weighs the tokens of a query."""
GROUPS = ("adapter", "copied", "fresh", "find", "mixing", "gate")


def parameter_groups(model: nn.Module, rates: dict[str, float], weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in :data:`GROUPS`, each with its peak rate of ``rates``."""
    groups: dict[str, list[tuple[str, nn.Parameter]]] = {name: [] for name in GROUPS}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.rsplit(".", 1)[-1] in GATE_NAMES:
            group = "gate"
        elif name.startswith(MIXING_PARTS):
            group = "mixing"
        elif name.startswith(FIND_PARTS):
            group = "find"
        elif "lora_" in name:
            group = "adapter"
        else:
            group = "fresh" if name.endswith(FRESH_NAMES) else "copied"
        groups[group].append((name, parameter))
    return [
        {
            "name": group,
            "params": [parameter for _, parameter in members],
            "names": [name for name, _ in members],
            "lr": rates[group],
            "weight_decay": 0.0 if group in ("mixing", "gate") else weight_decay,
        }
        for group, members in groups.items()
        if members
    ]


class MasterAdamW(torch.optim.Optimizer):
    """AdamW on float32 copies of the parameters it is given."""

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float] = (0.9, 0.999)) -> None:
        """Copy the parameters of ``groups``, each of which names its own ``lr`` and ``weight_decay``."""
        super().__init__(groups, {})
        masters = [
            {**group, "params": [p.detach().float().clone() for p in group["params"]]} for group in self.param_groups
        ]
        self.inner = torch.optim.AdamW(masters, betas=betas, fused=True)

    def _pairs(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        for live, master in zip(self.param_groups, self.inner.param_groups, strict=True):
            yield from zip(live["names"], live["params"], master["params"], strict=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the masters with the parameters' gradients, then the parameters."""
        loss = None if closure is None else closure()
        for live, kept in zip(self.param_groups, self.inner.param_groups, strict=True):
            kept["lr"] = live["lr"]
        parameters: list[Tensor] = []
        masters: list[Tensor] = []
        for _, parameter, master in self._pairs():
            master.grad = None
            if parameter.grad is not None:
                parameters.append(parameter)
                masters.append(master)
        # a model has hundreds of small adapters: one call for all of them, not one for each
        gradients = [torch.empty_like(master) for master in masters]
        if masters:
            torch._foreach_copy_(gradients, [cast("Tensor", parameter.grad) for parameter in parameters])
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient
            self.inner.step()
            torch._foreach_copy_(parameters, masters)
        return loss

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on later: masters and moments by parameter name."""
        saved = {}
        for name, _, master in self._pairs():
            saved[f"{name}|master"] = master
            saved |= {f"{name}|{key}": value for key, value in self.inner.state[master].items()}
        return saved

    @torch.no_grad()
    def load_tensors(self, saved: dict[str, Tensor]) -> None:
        """Take up what :meth:`tensors` gave; the parameters are set from the masters."""
        for name, parameter, master in self._pairs():
            master.copy_(saved[f"{name}|master"])
            parameter.copy_(master)
            if f"{name}|step" not in saved:
                continue
            # laid out as the master is: one call updates them together, element by element of their storage
            moments = {
                key: torch.empty_like(master).copy_(saved[f"{name}|{key}"]) for key in ("exp_avg", "exp_avg_sq")
            }
            step = saved[f"{name}|step"].to(master.device, copy=True)
            self.inner.state[master] = {"step": step, **moments}


def cosine_with_warmup(warmup_steps: int, total_steps: int, floor: float = 0.05) -> Callable[[int], float]:
    """Factor on the peak rate at a step: linear from 0, then a cosine to ``floor``, reached at the last step."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    return factor
