"""Vectors of many users in one store: every call names one user, and no search of one returns another's record."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.vectors import DECIMALS

Match = tuple[str, float]
"""Id of a record and its cosine, from -1 to 1."""


class VectorStore(ABC):
    """Unit vectors under ids of their own in each user's part; safe to use from several threads."""

    def __init__(self, width: int) -> None:
        """Hold vectors of ``width`` numbers."""
        self.width = width

    @abstractmethod
    def upsert(self, user: str, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store records, in place of those the user has under the same ids.

        Args:
            user: whose they are.
            ids: one for each vector, each once.
            vectors: unit vectors, ``(N, D)``.
        """

    @abstractmethod
    def search(self, user: str, vectors: FloatArray, count: int) -> list[list[Match]]:
        """The user's nearest records by cosine.

        Args:
            user: whose records are searched.
            vectors: unit vectors of the queries, ``(Q, D)``.
            count: the most matches per query.

        Returns:
            For each query at most ``count`` matches, best first, ties in the order of their ids.
        """

    @abstractmethod
    def delete(self, user: str, ids: Sequence[str] | None = None) -> None:
        """Remove those of the user's records, or by default all of them; an id without a record is passed over."""

    @abstractmethod
    def count(self, user: str) -> int:
        """How many records the user has."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections; the store is not used after that."""


class ExactVectorStore(VectorStore):
    """In memory, one matrix a user, one matrix product a search."""

    def __init__(self, width: int) -> None:
        """Start empty."""
        super().__init__(width)
        self._users: dict[str, _Records] = {}
        self._lock = threading.Lock()

    def upsert(self, user: str, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store records."""
        with self._lock:
            self._users.setdefault(user, _Records(self.width)).upsert(ids, vectors)

    def search(self, user: str, vectors: FloatArray, count: int) -> list[list[Match]]:
        """The user's nearest records."""
        with self._lock:
            records = self._users.get(user)
            return records.search(vectors, count) if records else [[] for _ in vectors]

    def delete(self, user: str, ids: Sequence[str] | None = None) -> None:
        """Remove some or all of the user's records."""
        with self._lock:
            if ids is None:
                self._users.pop(user, None)
            elif user in self._users:
                self._users[user].delete(ids)

    def count(self, user: str) -> int:
        """How many records the user has."""
        with self._lock:
            return len(self._users[user].ids) if user in self._users else 0

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._users.clear()


class _Records:
    """One user's vectors in the first rows of an array that doubles when it is full."""

    def __init__(self, width: int) -> None:
        self.ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((16, width), np.float32)

    def upsert(self, ids: Sequence[str], vectors: FloatArray) -> None:
        for record, vector in zip(ids, vectors, strict=True):
            row = self._rows.setdefault(record, len(self.ids))
            if row == len(self.ids):
                self.ids.append(record)
                if row == len(self._vectors):
                    self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
            self._vectors[row] = vector

    def delete(self, ids: Sequence[str]) -> None:
        for record in ids:
            row = self._rows.pop(record, None)
            if row is None:
                continue
            last = self.ids.pop()
            if last != record:  # the last row moves into the gap
                self.ids[row] = last
                self._rows[last] = row
                self._vectors[row] = self._vectors[len(self.ids)]

    def search(self, vectors: FloatArray, count: int) -> list[list[Match]]:
        scores = np.round(np.asarray(vectors, np.float32) @ self._vectors[: len(self.ids)].T, DECIMALS)  # (Q, N)
        found = []
        for row in scores:
            # every record as good as the last one kept, so that ids and not rows decide between equals
            least = np.partition(row, -count)[-count] if 0 < count < len(row) else -np.inf
            rows = np.flatnonzero(row >= least)
            scored = zip(rows.tolist(), row[rows].tolist(), strict=True)
            found.append(in_order([(self.ids[position], score) for position, score in scored], count))
        return found


def in_order(matches: Sequence[Match], count: int) -> list[Match]:
    """The best ``count`` matches, ties in the order of their ids."""
    return sorted(matches, key=lambda match: (-match[1], match[0]))[:count]


def open_vector_store(uri: str | None, collection: str, width: int) -> VectorStore:
    """Open a store, or make it where there is none.

    Args:
        uri: None for an exact search in memory; a path that ends in ``.db`` for Milvus Lite, which keeps its files
            there; ``http://host:19530`` for a Milvus server.
        collection: name of the collection within the Milvus database: letters, digits and underscores.
        width: numbers in a vector.

    Raises:
        UserError: Milvus is not installed or cannot be reached, or the collection holds vectors of another width.
    """
    if uri is None:
        return ExactVectorStore(width)
    # here, not at the top: the search in memory needs no Milvus
    from mlmf.retrieval.milvus import MilvusVectorStore

    return MilvusVectorStore(uri, collection, width)
