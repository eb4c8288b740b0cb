"""Retrieval by meaning: an encoder and an exact index of its vectors."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.retrieval.base import Hit, Index
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.vectors import VectorIndex


class DenseIndex(Index):
    """Ranks every text by the cosine between its vector and the query's."""

    def __init__(self, encoder: Encoder) -> None:
        """Start empty; encoders keep nothing, so many indexes can share one."""
        self._encoder = encoder
        self._vectors = VectorIndex()

    def __len__(self) -> int:
        """How many texts were added."""
        return len(self._vectors)

    def add(self, texts: Sequence[str]) -> None:
        """Encode and append texts."""
        if texts:
            self._vectors.add(self._encoder.encode_documents(texts))

    def search(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank by cosine, from -1 to 1."""
        if not queries or not len(self):
            return [[] for _ in queries]
        return self._vectors.search(self._encoder.encode_queries(queries), count)
