"""The vectors of a user's memories at two widths: narrow ones find a shortlist, full ones rank it.

A Matryoshka encoder packs meaning into the first numbers of a vector, so its first 256 of 768, scaled to length 1 again,
are a vector of their own. The narrow ones stand in a :class:`~mlmf.retrieval.vector_store.VectorStore`; the full ones stay
in the document store, which is read for the shortlist alone. The index holds nothing that the document store does not:
before a search it catches up with what was written since, by whichever process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import numpy as np

from mlmf.retrieval.base import FloatArray, best_hits
from mlmf.retrieval.vector_store import Match, open_vector_store
from mlmf.retrieval.vectors import DECIMALS, unit
from mlmf.systems.cognis.records import Kind
from mlmf.systems.cognis.store import DocumentStore

logger = logging.getLogger(__name__)

KINDS: tuple[Kind, ...] = ("fact", "message")
_PART = 5_000  # memories caught up with at a time: 15 MB of vectors of 768 numbers


def narrow(vectors: FloatArray, width: int) -> FloatArray:
    """The first ``width`` numbers of each vector, scaled to length 1: ``(N, width)``."""
    return unit(vectors[:, :width])


def shortlist_width(full: int) -> int:
    """A third of the full width, as the paper's 256 of 768.

    For an encoder that was not trained for it, such as MiniLM with 384 numbers, the first 128 are a coarser shortlist
    than a Matryoshka encoder's; its 200 places make up for most of that.
    """
    return max(1, full // 3)


class VectorIndex:
    """Facts and messages of many users, by meaning; safe to use from several threads."""

    def __init__(
        self, documents: DocumentStore, uri: str | None, *, full: int, width: int | None = None, shortlist: int = 200
    ) -> None:
        """Open the index.

        Args:
            documents: what the index follows.
            uri: of the vector store, see :func:`~mlmf.retrieval.vector_store.open_vector_store`.
            full: numbers in the encoder's vectors.
            width: numbers in those of the shortlist; None takes :func:`shortlist_width`, and ``full`` searches all
                vectors at once, without a shortlist.
            shortlist: memories ranked at full width.

        Raises:
            UserError: the vector store cannot be opened, or holds vectors of another width.
        """
        self.full = full
        self.width = min(full, width or shortlist_width(full))
        self.shortlist = shortlist
        self._documents = documents
        self._stores = {kind: open_vector_store(uri, f"cognis_{kind}_{self.width}", self.width) for kind in KINDS}
        self._lasting = None if uri is None else f"{uri}#{self.width}"
        self._seen: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()
        if full != 768:
            logger.info(
                "cognis: the encoder has %d numbers a vector, not 768; the shortlist uses the first %d",
                full,
                self.width,
            )

    def search(self, user: str, kind: Kind, queries: FloatArray, count: int) -> list[list[Match]]:
        """The nearest memories by cosine at full width.

        Args:
            user: whose memories.
            kind: facts or messages.
            queries: unit vectors, ``(Q, full)``.
            count: the most matches per query.

        Returns:
            For each query ids and cosines, best first, ties in the order of writing.
        """
        if not len(queries):
            return []
        self.catch_up(user)
        if self.width == self.full:
            return self._stores[kind].search(user, queries, count)
        near = self._stores[kind].search(user, narrow(queries, self.width), max(count, self.shortlist))
        ids = list(dict.fromkeys(name for matches in near for name, _ in matches))
        known, vectors = self._documents.vectors(user, ids)
        # what has been deleted since the search is in the shortlist and not in the store
        row = {name: i for i, name in enumerate(known)}
        found = []
        for query, matches in zip(queries, near, strict=True):
            rows = np.sort([row[name] for name, _ in matches if name in row]).astype(np.intp)
            scores = np.round(vectors[rows] @ query, DECIMALS) if len(rows) else np.zeros(0, np.float32)
            best = best_hits(scores, count)
            found.append([(known[rows[hit.position]], hit.score) for hit in best])
        return found

    def catch_up(self, user: str) -> None:
        """Take in what was written since the last time, and forget a user who was deleted."""
        with self._lock:
            incarnation = self._documents.incarnation(user)
            known, cursor = self._seen.get(user, (None, 0))
            if known is not None and known != incarnation:
                self._forget(user)
                cursor = 0
            if incarnation is None:
                return
            if self._lasting and user not in self._seen:
                cursor = self._documents.cursor(user, self._lasting)
            start = cursor
            while True:
                part = self._documents.written_since(user, cursor, _PART)
                if part.cursor == cursor:
                    break
                self._take_in(user, part.memories, part.vectors)
                cursor = part.cursor
            if self._lasting and cursor != start:
                # after the vectors: whoever dies in between does it again, and finds the same ids
                self._documents.set_cursor(user, self._lasting, cursor)
            self._seen[user] = (incarnation, cursor)

    def delete_user(self, user: str) -> None:
        """Remove the vectors of a user whom the document store has forgotten."""
        with self._lock:
            self._forget(user)

    def count(self, user: str) -> int:
        """How many vectors are held of a user."""
        return sum(store.count(user) for store in self._stores.values())

    def close(self) -> None:
        """Close the vector store."""
        for store in self._stores.values():
            store.close()

    def _take_in(self, user: str, memories: Sequence[tuple[str, str]], vectors: FloatArray) -> None:
        for kind, store in self._stores.items():
            rows = [i for i, (_, found) in enumerate(memories) if found == kind]
            if rows:
                store.upsert(user, [memories[i][0] for i in rows], narrow(vectors[rows], self.width))

    def _forget(self, user: str) -> None:
        for store in self._stores.values():
            store.delete(user)
        self._seen.pop(user, None)
