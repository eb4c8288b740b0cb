"""Long-term memory: insights distilled from ended sessions, found by meaning when a session begins."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.vector_store import VectorStore
from mlmf.systems.cogmem.agents import MemoryAgent
from mlmf.systems.cogmem.records import Insight, TurnRecord
from mlmf.systems.cogmem.stores import Records, SessionStore

_SIMILAR = 3
_REVISION = "insights"


@dataclass
class _Seen:
    """Up to where the vectors of a user follow the words."""

    revision: str | None
    texts: dict[str, str]
    """What they are of, by id."""


class LongTermMemory:
    """Insights of many users: the words in the session store, their vectors in the vector store.

    The vectors follow the words. Before a user's insights are first read the two are counted, and where they differ, since
    a write was interrupted, the vectors are made anew. Every write of words leaves a new revision with them; where another
    process has left one, the vectors of what it changed are made before the next search.
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
        self._seen: dict[str, _Seen] = {}
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
        self._catch_up(user)
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
        self._catch_up(user)
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
        with self._lock:
            self._vectors.delete(user)
            self._seen.pop(user, None)

    def close(self) -> None:
        """Close the vector store; the session store is closed by whoever opened it."""
        self._vectors.close()

    def _write(self, user: str, insight: Insight, vector: FloatArray | None) -> None:
        try:
            self._vectors.delete(user, [insight.id])
            revision = uuid.uuid4().hex
            before = self._store.change(user, partial(_set_insight, insight, revision))
            vector = self._encoder.encode_documents([insight.text]) if vector is None else vector
            self._vectors.upsert(user, [insight.id], vector)
        except BaseException:
            with self._lock:
                self._seen.pop(user, None)  # a vector may be missing: the next search counts them again
            raise
        with self._lock:
            seen = self._seen.get(user)
            if seen is not None:
                seen.texts[insight.id] = insight.text
                # else another process has written since this one looked, and what it wrote is still to be taken in
                if seen.revision == before:
                    seen.revision = revision

    def _catch_up(self, user: str) -> None:
        """Have the vectors of all that is stored, whichever process wrote it."""

        def read(records: Records) -> tuple[str | None, dict[str, str] | None]:
            revision = records.get("revision", _REVISION)
            is_known = user in self._seen and self._seen[user].revision == revision
            return revision, None if is_known else records.all("insight")

        with self._lock:
            revision, stored = self._store.change(user, read)
            if stored is None:
                return
            texts = {name: Insight.model_validate_json(record).text for name, record in stored.items()}
            known = self._seen[user].texts if user in self._seen else self._texts_in_store(user, texts)
            self._vectors.delete(user, [name for name in known if name not in texts])
            new = [name for name, text in texts.items() if known.get(name) != text]
            if new:
                self._vectors.upsert(user, new, self._encoder.encode_documents([texts[name] for name in new]))
            self._seen[user] = _Seen(revision, texts)

    def _texts_in_store(self, user: str, texts: dict[str, str]) -> dict[str, str]:
        """What the vectors of an earlier process are of: all texts, or nothing that can be relied on."""
        if self._vectors.count(user) == len(texts):
            return dict(texts)
        self._vectors.delete(user)
        return {}


def _set_insight(insight: Insight, revision: str, records: Records) -> str | None:
    """Write an insight and a new revision; returns the revision before."""
    before = records.get("revision", _REVISION)
    records.set("insight", insight.id, insight.model_dump_json())
    records.set("revision", _REVISION, revision)
    return before
