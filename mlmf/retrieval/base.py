"""What an index is: texts go in, one after the other; queries rank them. Equal scores go to the earlier text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that was found."""

    position: int
    """0-based number of the text, in the order in which texts were added."""
    score: float
    """Higher is better; comparable within one search only."""


class Index(ABC):
    """The texts of one conversation. It knows no other, so no query can reach another user's texts."""

    @abstractmethod
    def __len__(self) -> int:
        """How many texts were added."""

    @abstractmethod
    def add(self, texts: Sequence[str]) -> None:
        """Append texts; how they are split over calls changes no result."""

    @abstractmethod
    def search(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank the texts for each query.

        Args:
            queries: independent queries.
            count: the most hits per query.

        Returns:
            For each query at most ``count`` hits, best first. A text that cannot match is no hit.
        """


def best_hits(scores: FloatArray, count: int) -> list[Hit]:
    """The ``count`` highest of the scores ``(N,)``, best first, ties in the order of position; ``-inf`` is no hit."""
    order = np.argsort(-scores, kind="stable")[:count]
    order = order[np.isfinite(scores[order])]
    return [Hit(position, score) for position, score in zip(order.tolist(), scores[order].tolist(), strict=True)]
