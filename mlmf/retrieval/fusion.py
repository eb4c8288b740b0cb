"""Several rankings of the same texts become one: weighted reciprocal rank (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mlmf.retrieval.base import Hit, Index

# the paper's 60 is for rankings of thousands; over the few hundred turns of a conversation the first ranks count more
RANK_OFFSET = 5


def reciprocal_rank(rankings: Sequence[Sequence[Hit]], weights: Sequence[float], k: int = RANK_OFFSET) -> list[Hit]:
    """``score(d) = Σ_i w_i / (k + rank_i(d))``, ranks from 1; a ranking without ``d`` adds nothing.

    Args:
        rankings: of the same texts, each best first.
        weights: one for each ranking, at least 0.
        k: the larger, the less the first ranks stand out.

    Returns:
        Every text that some ranking holds, best first, ties in the order of position.
    """
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.position] += weight / (k + rank)
    # the sum depends on its order in the last bit, which must not decide between texts of equal ranks
    hits = [Hit(position, round(score, 12)) for position, score in scores.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.position))


class HybridIndex(Index):
    """Adds every text to several indexes and fuses their rankings."""

    def __init__(
        self, parts: Sequence[Index], weights: Sequence[float], *, depth: int = 200, k: int = RANK_OFFSET
    ) -> None:
        """Fuse empty indexes.

        Args:
            parts: the indexes.
            weights: one for each part.
            depth: how many hits of each part take part.
            k: see :func:`reciprocal_rank`.
        """
        self._parts, self._weights = list(parts), list(weights)
        self._depth, self._k = depth, k

    def __len__(self) -> int:
        """How many texts were added."""
        return len(self._parts[0])

    def add(self, texts: Sequence[str]) -> None:
        """Append texts to every part."""
        for part in self._parts:
            part.add(texts)

    def search(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank by reciprocal rank."""
        found = [part.search(queries, max(count, self._depth)) for part in self._parts]
        return [reciprocal_rank(rankings, self._weights, self._k)[:count] for rankings in zip(*found, strict=True)]
