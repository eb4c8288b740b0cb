"""The hooks through which decoder layers read memory, for as long as one call lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlmf.encoder import OneAtATime, hidden_states_of
from mlmf.memory.fusion import MemoryBank, ProjectedBank
from mlmf.memory.multilayer import MultiLayerMemory


@dataclass
class Reading:
    """What the fusion layers read during one call, and the gates they reported on its first pass."""

    banks: list[ProjectedBank]
    gamma: dict[int, Tensor] = field(default_factory=dict)
    _repeated: dict[tuple[int, int], ProjectedBank] = field(default_factory=dict)

    def bank(self, number: int, rows: int) -> ProjectedBank:
        """What fusion layer ``number`` reads for a batch of ``rows``: several for each conversation in beam search."""
        bank = self.banks[number]
        if rows == bank.key.shape[0]:
            return bank
        if (number, rows) not in self._repeated:
            self._repeated[number, rows] = bank.repeat(rows // bank.key.shape[0])
        return self._repeated[number, rows]

    def stacked_gamma(self) -> Tensor:
        """Gamma of the first pass, ``(B, L, T, 3)``."""
        return torch.stack([self.gamma[i] for i in sorted(self.gamma)], 1)


class FusionHooks:
    """Hooks on the decoder layers that fuse; outside of :meth:`reading_from` they do nothing.

    Calls of several threads take turns, since what a layer reads is a state of the wrapped model while a call lasts.
    """

    def __init__(self, memory: MultiLayerMemory, layers: nn.ModuleList, fusion_layers: Sequence[int]) -> None:
        """Let ``layers[i]`` read through the fusion of ``memory`` that belongs to it, for ``i`` in ``fusion_layers``."""
        self.memory = memory
        self._one_at_a_time = OneAtATime()
        self._reading: Reading | None = None
        for number, index in enumerate(fusion_layers):
            # a bound method and no closure: a deep copy of the model fuses its own memory
            layers[index].register_forward_pre_hook(partial(self._fuse, number), with_kwargs=True)

    @contextmanager
    def reading_from(self, bank: MemoryBank | None) -> Iterator[Reading | None]:
        """Let the fusion layers read ``bank``, or nothing, for the calls made inside."""
        reading = None if bank is None else Reading(self.memory.project(bank))
        with self._set(reading):
            yield reading

    def recompute_contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For gradient checkpointing: what surrounds the first run of a layer, and its second run in backward.

        Where transformers checkpoints a layer together with its hooks, the second run needs the first run's memory.
        """
        return nullcontext(), self._set(self._reading)

    @contextmanager
    def _set(self, reading: Reading | None) -> Iterator[None]:
        with self._one_at_a_time:
            before, self._reading = self._reading, reading
            try:
                yield
            finally:
                self._reading = before

    def _fuse(self, number: int, _: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        """Fuse memory into the input of one decoder layer."""
        reading = self._reading
        if reading is None:
            return None
        hidden = hidden_states_of(args, kwargs)
        fused, gamma = self.memory.fusions[number](hidden, reading.bank(number, hidden.shape[0]))
        reading.gamma.setdefault(number, gamma)
        if args:
            return (fused, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": fused}
