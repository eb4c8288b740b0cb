"""Long-term memory: insights distilled from ended sessions, found by meaning when a session begins."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.vector_store import VectorStore
from mlmf.systems.cogmem.agents import MemoryAgent
from mlmf.systems.cogmem.records import Insight, TurnRecord
from mlmf.systems.cogmem.stores import Records, SessionStore

_SIMILAR = 3


class LongTermMemory:
    """Insights of many users: the words in the session store, their vectors in the vector store.

    An insight without its vector is one too few there, whatever was interrupted: before a user's insights are first
    read the two are counted, and where they differ the vectors are made anew from the words.
    """

    def __init__(self, store: SessionStore, vectors: VectorStore, encoder: Encoder, agent: MemoryAgent) -> None:
        """Open the memory.

        Args:
            store: holds the words.
            vectors: holds their vectors.
            encoder: makes the vectors.
            agent: the memory agent, which rewrites queries and reviews sessions.
        """
        self._store, self._vectors, self._encoder, self._agent = store, vectors, encoder, agent
        self._complete: set[str] = set()
        self._lock = threading.Lock()

    def retrieve(self, user: str, asked: str, count: int) -> list[Insight]:
        """The insights nearest to what a session opens with, best first.

        Args:
            user: whose.
            asked: the opening; the memory agent rewrites it as a description.
            count: the most insights.
        """
        return self.retrieve_all(user, [asked], count)[0]

    def retrieve_all(self, user: str, asked: Sequence[str], count: int) -> list[list[Insight]]:
        """The same for several openings at once."""
        self._restore(user)
        if not asked or not self._vectors.count(user):
            return [[] for _ in asked]
        vectors = self._encoder.encode_queries([self._agent.describe(text) for text in asked])
        found = self._vectors.search(user, vectors, count)
        stored = self.named(user, [name for matches in found for name, _ in matches])
        return [[stored[name] for name, _ in matches if name in stored] for matches in found]

    def named(self, user: str, names: Sequence[str]) -> dict[str, Insight]:
        """Those of the named insights that there are, by their ids."""

        def read(records: Records) -> dict[str, str | None]:
            return {name: records.get("insight", name) for name in names}

        stored = self._store.change(user, read)
        return {name: Insight.model_validate_json(record) for name, record in stored.items() if record is not None}

    def insights(self, user: str) -> dict[str, Insight]:
        """All of a user's insights by their ids."""
        records = self._store.change(user, lambda records: records.all("insight"))
        return {name: Insight.model_validate_json(record) for name, record in records.items()}

    def review(self, user: str, turns: Sequence[TurnRecord]) -> None:
        """Take in what is worth keeping of a session that has ended: each insight is added, merged or left out."""
        self._restore(user)
        candidates = self._agent.distil(turns)
        if not candidates:
            return
        vectors = self._encoder.encode_documents([text for text, _ in candidates])
        for (text, sources), vector in zip(candidates, vectors, strict=True):
            near = self._vectors.search(user, vector[None], _SIMILAR)[0]
            stored = self.named(user, [name for name, _ in near])
            verdict = self._agent.judge(text, [(stored[name], cosine) for name, cosine in near if name in stored])
            if verdict.action == "exclude":
                continue
            replaced = stored.get(verdict.merge_with or "")
            insight = Insight(
                id=replaced.id if replaced else hashlib.sha256(verdict.text.encode()).hexdigest()[:32],
                text=verdict.text,
                sources=tuple(dict.fromkeys([*sources, *(replaced.sources if replaced else ())])),
            )
            self._write(user, insight, vector[None] if insight.text == text else None)

    def forget(self, user: str) -> None:
        """Remove the vectors of a user's insights; the words go with the user's records in the session store."""
        self._vectors.delete(user)
        with self._lock:
            self._complete.discard(user)

    def close(self) -> None:
        """Close the vector store; the session store is closed by whoever opened it."""
        self._vectors.close()

    def _write(self, user: str, insight: Insight, vector: FloatArray | None) -> None:
        self._vectors.delete(user, [insight.id])
        self._store.change(user, lambda records: records.set("insight", insight.id, insight.model_dump_json()))
        vector = self._encoder.encode_documents([insight.text]) if vector is None else vector
        self._vectors.upsert(user, [insight.id], vector)

    def _restore(self, user: str) -> None:
        with self._lock:
            if user in self._complete:
                return
            stored = self.insights(user)
            if self._vectors.count(user) != len(stored):
                self._vectors.delete(user)
                if stored:
                    texts = [insight.text for insight in stored.values()]
                    self._vectors.upsert(user, list(stored), self._encoder.encode_documents(texts))
            self._complete.add(user)
