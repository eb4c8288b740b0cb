"""What the frozen base model makes of queries: read when asked, or once and kept, since it never changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mlmf.encoder import BaseEncoder

KEPT_BYTES = 256 * 2**20
"""Most memory that kept states take, on the device of the model; queries beyond it are read each time."""
BATCH_TOKENS = 2048


class QueryReader:
    """Key-layer states of queries given as token ids; a leading newline takes the place of the attention sink.

    Of a query that the base model cannot read in one pass with it, the last tokens count.
    """

    def __init__(self, encoder: BaseEncoder) -> None:
        """Read with ``encoder``."""
        self.encoder = encoder
        self.newline: list[int] = encoder.tokenizer("\n", add_special_tokens=False)["input_ids"]
        self._kept: dict[tuple[int, ...], Tensor] = {}

    @property
    def longest(self) -> int:
        """Most tokens of a query that are read."""
        return self.encoder.window - len(self.newline)

    def keep(self, queries: Iterable[Sequence[int]], limit: int = KEPT_BYTES) -> None:
        """Read each distinct query now, and never again: training asks the same ones at every epoch.

        Done at the start of a run, and not as queries come, so that the states do not depend on the batch that a query
        was first met in: they would differ in the last bits after a run was resumed.

        Args:
            queries: token ids of each.
            limit: most bytes kept; the shortest queries come first.
        """
        waiting = sorted({tuple(query) for query in queries} - self._kept.keys(), key=lambda ids: (-len(ids), ids))
        used = sum(states.nbytes for states in self._kept.values())
        while waiting:
            batch = [waiting.pop()]
            while waiting and (len(batch) + 1) * len(waiting[-1]) <= BATCH_TOKENS:
                batch.append(waiting.pop())
            states = self._read(batch)
            used += sum(one.nbytes for one in states)
            if used > limit:
                return
            self._kept |= dict(zip(batch, states, strict=True))

    def __call__(self, queries: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """States ``(B, T, D)``, token ids ``(B, T)`` and mask ``(B, T)`` of a batch of queries, padded on the right."""
        keys = [tuple(query) for query in queries]
        unknown = [key for key in dict.fromkeys(keys) if key not in self._kept]
        found = dict(zip(unknown, self._read(unknown) if unknown else [], strict=True)) | self._kept
        lm = self.encoder.lm
        states = [found[key].to(lm.device, lm.dtype) for key in keys]
        tokens = [torch.tensor(key[-self.longest :], device=lm.device, dtype=torch.long) for key in keys]
        mask = [torch.ones_like(ids, dtype=torch.bool) for ids in tokens]
        return tuple(pad_sequence(parts, batch_first=True) for parts in (states, tokens, mask))  # type: ignore[return-value]

    def _read(self, queries: Sequence[Sequence[int]]) -> list[Tensor]:
        """The states of each query, ``(n, D)``."""
        rows = [torch.tensor([*self.newline, *query[-self.longest :]]) for query in queries]
        layer = self.encoder.key_layer
        states = self.encoder.states(pad_sequence(rows, batch_first=True), [layer])[layer]
        return [states[i, len(self.newline) : len(row)].clone() for i, row in enumerate(rows)]
