"""An exact index of vectors: one matrix product a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlmf.retrieval.base import FloatArray, Hit, best_hits

# the same text encoded in another batch differs in its last bits; rounded, equal texts are ties
DECIMALS = 5


class VectorIndex:
    """Unit vectors of one conversation, compared by cosine; exact, and fast enough for some 100,000 of them."""

    def __init__(self) -> None:
        """Start empty; the first vectors set the width."""
        self._blocks: list[FloatArray] = []

    def __len__(self) -> int:
        """How many vectors were added."""
        return sum(len(block) for block in self._blocks)

    def add(self, vectors: FloatArray) -> None:
        """Append unit vectors, ``(N, D)``."""
        if len(vectors):
            self._blocks.append(np.asarray(vectors, np.float32))

    def search(self, vectors: FloatArray, count: int) -> list[list[Hit]]:
        """The nearest by cosine.

        Args:
            vectors: unit vectors of the queries, ``(Q, D)``.
            count: the most hits per query.
        """
        if not self._blocks:
            return [[] for _ in vectors]
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        scores = np.round(vectors @ self._blocks[0].T, DECIMALS)  # (Q, N)
        return [best_hits(row, count) for row in scores]


def unit(vectors: Sequence[Sequence[float]] | FloatArray) -> FloatArray:
    """Vectors ``(N, D)`` scaled to length 1; a zero vector stays zero."""
    array = np.asarray(vectors, np.float32)
    length = np.linalg.norm(array, axis=-1, keepdims=True)
    return np.asarray(array / np.where(length > 0, length, 1), np.float32)
