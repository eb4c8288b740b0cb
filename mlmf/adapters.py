"""LoRA adapters of the wrapped model: added, taken out of the way for reading, merged for answering."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from mlmf.config.model import LoraSettings
from mlmf.errors import UserError

_ADAPTER = "default"


def with_lora(lm: PreTrainedModel, settings: LoraSettings, layers: nn.ModuleList, first: int) -> PreTrainedModel:
    """Adapters on the linear layers of the decoder blocks, in the model's dtype; the base is frozen either way.

    Args:
        lm: the model to adapt.
        settings: see there.
        layers: its decoder blocks.
        first: the lowest block that is adapted. Below the first fusion layer nothing of a memory arrives, and blocks that
            learn nothing need no backward pass.

    Raises:
        UserError: ``target_modules`` names no layer of the model.
    """
    lm.requires_grad_(False)
    if settings.r == 0:
        return lm
    lora = LoraConfig(
        r=settings.r, lora_alpha=settings.lora_alpha, lora_dropout=settings.lora_dropout, task_type="CAUSAL_LM",
        target_modules=settings.target_modules or "all-linear", exclude_modules=_blocks_below(first, layers, lm),
    )  # fmt: skip
    # float32 adapters on a bfloat16 base make every step several times slower; the optimiser keeps float32 masters
    # a PeftModel forwards everything to the model it holds
    try:
        return cast("PreTrainedModel", get_peft_model(lm, lora, autocast_adapter_dtype=False))
    except ValueError as error:
        raise UserError(f"lora.target_modules {settings.target_modules}: {error}") from error


def _blocks_below(first: int, layers: nn.ModuleList, lm: PreTrainedModel) -> str | None:
    """A pattern for the names of all modules in the first blocks."""
    if first == 0:
        return None
    blocks = next(name for name, module in lm.named_modules() if module is layers)
    numbers = "|".join(map(str, range(first)))
    return rf"(.*\.)?{re.escape(blocks)}\.({numbers})\..*"


@dataclass(frozen=True)
class _Place:
    """Where an adapted layer stands in the wrapped model: ``parent.name``."""

    parent: nn.Module
    name: str
    adapted: nn.Module
    """The layer of peft."""
    base: nn.Module
    """The frozen layer below it."""

    def merged(self) -> nn.Module:
        """A layer of its own with the update added to its weight; the adapted layer itself where that cannot be.

        Only a plain floating-point matrix takes an update without loss of form: quantised layers keep their adapters
        beside them.
        """
        base, lora = self.base, cast("Any", self.adapted)
        if not isinstance(base, nn.Linear | Conv1D) or not base.weight.is_floating_point():
            return self.adapted
        down, up = lora.lora_A[_ADAPTER].weight, lora.lora_B[_ADAPTER].weight
        update = lora.scaling[_ADAPTER] * (up.float() @ down.float())
        weight = base.weight.detach().float() + (update.T if isinstance(base, Conv1D) else update)
        layer = copy.copy(base)
        layer._parameters = base._parameters.copy()  # a shallow copy of a module shares the dictionary
        layer.weight = nn.Parameter(weight.to(base.weight.dtype), requires_grad=False)
        return layer


class Adapters:
    """The adapted layers of a wrapped model, and what stands in their places during a call.

    Between calls the adapted layers of peft are in place, so that nothing else ever trains, saves, copies or loads.
    Inside :meth:`base_only` the frozen layers are, bit for bit those of the base model; inside :meth:`merged`, layers
    whose weights have the update added in, which decodes at the speed of the base model. The merged weights are a
    second copy, made when first wanted and made anew once a weight they come from has changed.
    """

    def __init__(self, lm: PreTrainedModel, merging: bool) -> None:
        """Find the adapted layers of ``lm``; ``merging=False`` keeps :meth:`merged` from making a copy."""
        self.merging = merging
        self._places = [
            _Place(parent, name, child, child.get_base_layer())
            for parent in lm.modules()
            for name, child in parent.named_children()
            if isinstance(child, LoraLayer)
        ]
        self._standing: list[nn.Module] = [place.adapted for place in self._places]
        # dictionaries of parameters and no parameters: loading may put others into their place
        self._sources = [
            (module._parameters, name)
            for place in self._places
            for module in place.adapted.modules()
            for name in module._parameters
        ]
        self._merged: list[nn.Module] | None = None
        self._made_of: list[tuple[int, int]] = []

    @property
    def held_bytes(self) -> int:
        """Memory taken by merged weights."""
        pairs = zip(self._merged or [], self._places, strict=False)
        return sum(cast("Tensor", layer.weight).nbytes for layer, place in pairs if layer is not place.adapted)

    def release(self) -> None:
        """Free the merged weights."""
        self._merged, self._made_of = None, []

    @torch.no_grad()
    def merge(self) -> None:
        """Make the merged weights now, whether or not something has changed."""
        self._check()
        self.release()  # first, or three copies would be held for a moment
        self._merged, self._made_of = [place.merged() for place in self._places], self._versions()

    @contextmanager
    def base_only(self) -> Iterator[None]:
        """The frozen base model alone, also inside of :meth:`merged`."""
        with self._with([place.base for place in self._places]):
            yield

    @contextmanager
    def merged(self) -> Iterator[None]:
        """Merged weights, or the adapted layers where :attr:`merging` is off."""
        if not self.merging:
            with self._with([place.adapted for place in self._places]):
                yield
            return
        if self._merged is None or self._made_of != self._versions():
            self.merge()
        with self._with(cast("list[nn.Module]", self._merged)):
            yield

    def _versions(self) -> list[tuple[int, int]]:
        """Changes with every write to a weight and every move of one."""
        tensors = [tensor for source, name in self._sources if (tensor := source[name]) is not None]
        return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]

    @contextmanager
    def _with(self, layers: list[nn.Module]) -> Iterator[None]:
        self._check()
        before = self._standing
        self._put(layers)
        try:
            yield
        finally:
            self._put(before)

    def _put(self, layers: list[nn.Module]) -> None:
        for place, layer in zip(self._places, layers, strict=True):
            # not setattr: its checks take longer for two hundred layers than reading a few tokens
            place.parent._modules[place.name] = layer
        self._standing = layers

    def _check(self) -> None:
        for place, layer in zip(self._places, self._standing, strict=True):
            if place.parent._modules[place.name] is not layer or cast("Any", place.adapted).merged:
                raise UserError(
                    f"the adapter of layer {place.name!r} was merged or unloaded through peft, so the base model that "
                    "memories are written with is gone. Load the model again, and use its own merge_adapters(), which "
                    "keeps the base"
                )
