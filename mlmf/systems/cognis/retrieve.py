"""A question to memories: analysis, vectors and BM25 side by side, fusion, time, versions, reranking; each stage timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from mlmf.config.cognis import CognisSettings
from mlmf.retrieval.base import FloatArray, Hit
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.fusion import reciprocal_rank
from mlmf.retrieval.rerank import Reranker
from mlmf.systems.cognis.analysis import Analysis, analyse, plain_words
from mlmf.systems.cognis.boost import boosted
from mlmf.systems.cognis.index import KINDS, VectorIndex
from mlmf.systems.cognis.records import Memory
from mlmf.systems.cognis.store import DocumentStore
from mlmf.systems.cognis.timing import StageTimes
from mlmf.types import Query

_SEARCHERS = 4  # threads for the searches by words, which run beside those by meaning of as many callers


@dataclass(frozen=True, slots=True)
class Found:
    """A memory that answers a question, perhaps."""

    memory: Memory
    score: float
    """Higher is better; comparable within one search only."""


class Retrieval:
    """Searches the memories of users by the stages that its settings leave on."""

    def __init__(
        self,
        documents: DocumentStore,
        index: VectorIndex,
        encoder: Encoder,
        settings: CognisSettings,
        reranker: Reranker | None = None,
    ) -> None:
        """Use stores, an encoder and perhaps a cross-encoder."""
        self._documents, self._index, self._encoder = documents, index, encoder
        self._settings, self._reranker = settings, reranker
        self._pool = ThreadPoolExecutor(_SEARCHERS, "cognis-words")
        self.times = StageTimes()

    def search(
        self, user: str, queries: Sequence[Query], count: int, *, as_of: datetime | None = None
    ) -> list[list[Found]]:
        """The memories that fit each question best.

        Args:
            user: whose memories.
            queries: independent questions.
            count: the most memories per question.
            as_of: answer from what was known at that moment.

        Returns:
            For each question at most ``count`` memories, best first.
        """
        vectors: Sequence[FloatArray | None] = [None] * len(queries)
        if self._settings.use_vectors and queries:
            with self.times.stage("encode"):
                vectors = list(self._encoder.encode_queries([query.text for query in queries]))
        latest, speakers = self._documents.latest(user), self._documents.speakers(user)
        if as_of is not None and (latest is None or latest > as_of):
            latest = as_of
        found = []
        for query, vector in zip(queries, vectors, strict=True):
            with self.times.stage("total"):
                found.append(self._search(user, query, vector, count, latest, speakers, as_of))
        return found

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _search(
        self,
        user: str,
        query: Query,
        vector: FloatArray | None,
        count: int,
        latest: datetime | None,
        speakers: Sequence[str],
        as_of: datetime | None,
    ) -> list[Found]:
        settings = self._settings
        with self.times.stage("analysis"):
            analysis = analyse(query, latest, speakers) if settings.use_analysis else Analysis(plain_words(query.text))
        rankings, weights = self._rankings(user, analysis, vector)
        with self.times.stage("read"):
            ids = sorted({name for ranking in rankings for name in ranking})
            memories = {memory.id: memory for memory in self._documents.get(user, ids)}
        with self.times.stage("versions"):
            standing = self._standing(user, memories, query, analysis, as_of)
            kept = [list(dict.fromkeys(standing[name] for name in r if name in standing)) for r in rankings]
            chosen = {memory.id: memory for memory in standing.values()}
        with self.times.stage("fusion"):
            fused = _fuse([[m.id for m in ranking] for ranking in kept], weights, chosen, settings.rank_offset)
        if settings.use_temporal or settings.entity_weight:
            with self.times.stage("boosts"):
                fused = boosted(fused, analysis, latest, settings)
        best = _once_a_turn(fused, max(count, settings.rerank_count if self._reranker else 0))
        if self._reranker:
            with self.times.stage("rerank"):
                best = _reranked(best, query, self._reranker, settings.rerank_count)
        return [Found(memory, score) for memory, score in best[:count]]

    def _rankings(
        self, user: str, analysis: Analysis, vector: FloatArray | None
    ) -> tuple[list[list[str]], list[float]]:
        """Ids ranked by meaning and by words, searched at the same time, with their weights."""
        depth, weight = self._settings.shortlist, self._settings.vector_weight
        words = None
        if self._settings.use_words:
            words = self._pool.submit(self._by_words, user, analysis.words, depth)
        rankings, weights = [], []
        if vector is not None:
            rankings.append(self._by_meaning(user, vector, depth))
            weights.append(weight if words else 1.0)
        if words:
            rankings.append(words.result())
            weights.append(1 - weight if vector is not None else 1.0)
        return rankings, weights

    def _by_words(self, user: str, words: Sequence[str], depth: int) -> list[str]:
        with self.times.stage("words"):
            return self._documents.search_words(user, words, depth)

    def _by_meaning(self, user: str, vector: FloatArray, depth: int) -> list[str]:
        """Facts and messages in one ranking: their vectors come from one encoder."""
        with self.times.stage("vectors"):
            matches = [match for kind in KINDS for match in self._index.search(user, kind, vector[None], depth)[0]]
            return [name for name, _ in sorted(matches, key=lambda match: (-match[1], match[0]))[:depth]]

    def _standing(
        self,
        user: str,
        memories: Mapping[str, Memory],
        query: Query,
        analysis: Analysis,
        as_of: datetime | None,
    ) -> dict[str, Memory]:
        """What each found memory counts for: itself, the version that stands in its place, or nothing."""
        messages = [memory for memory in memories.values() if memory.kind == "message"]
        facts = [memory for memory in memories.values() if memory.kind == "fact"]
        if not self._settings.use_versions and as_of is None:
            standing: dict[str, Memory] = {fact.id: fact for fact in facts}
        else:
            heads = self._heads(user, facts, as_of)
            # what was withdrawn has no head, and is no answer to a question about the past either
            as_said = as_of is None and analysis.wants_past
            standing = {fact.id: fact if as_said else heads[fact.chain] for fact in facts if fact.chain in heads}
        # a question that was asked before is not an answer to it
        echo = " ".join(query.text.lower().split())
        waiting = None
        if not self._settings.use_messages and messages:
            waiting = {message.id for message in self._documents.pending(user)}
        for message in messages:
            is_echo = " ".join(message.text.lower().split()) == echo
            if (
                not is_echo
                and (as_of is None or message.known_on(as_of))
                and (waiting is None or message.id in waiting)
            ):
                standing[message.id] = message
        return standing

    def _heads(self, user: str, facts: Sequence[Memory], as_of: datetime | None) -> dict[str, Memory]:
        """The version that stands, or stood at a moment, by chain."""
        if as_of is not None:
            versions = self._documents.chains(user, sorted({fact.chain for fact in facts}))
            return {version.chain: version for version in versions if version.known_on(as_of)}
        current = {fact.chain: fact for fact in facts if fact.is_current}
        replaced = sorted({fact.chain for fact in facts} - current.keys())
        versions = self._documents.chains(user, replaced) if replaced else []
        return current | {version.chain: version for version in versions if version.is_current}


Scored = tuple[Memory, float]


def _fuse(
    rankings: Sequence[Sequence[str]], weights: Sequence[float], memories: Mapping[str, Memory], offset: int
) -> list[Scored]:
    """Weighted reciprocal rank; the best possible score is 1, ties go to what was written earlier."""
    names = sorted(memories)
    position = {name: i for i, name in enumerate(names)}
    hits = [[Hit(position[name], 0.0) for name in ranking] for ranking in rankings]
    most = sum(weights) / (offset + 1)
    fused = reciprocal_rank(hits, weights, offset)
    return [(memories[names[hit.position]], hit.score / most) for hit in fused if hit.score > 0]


def _once_a_turn(found: Sequence[Scored], count: int) -> list[Scored]:
    """The best ``count``, without a message of whose turn a fact stands before it, or a fact after its whole message."""
    kept: list[Scored] = []
    told: dict[str, set[str]] = {}
    for memory, score in found:
        if len(kept) == count:
            break
        kinds = [told.setdefault(turn_id, set()) for turn_id in memory.turn_ids]
        if all("message" in kind or (memory.kind == "message" and kind) for kind in kinds):
            continue
        for kind in kinds:
            kind.add(memory.kind)
        kept.append((memory, score))
    return kept


def _reranked(found: Sequence[Scored], query: Query, reranker: Reranker, count: int) -> list[Scored]:
    """The best ``count`` in the reranker's order, then the rest; a score is that of its place."""
    order = reranker.order(query.text, [memory.searchable for memory, _ in found[:count]])
    ordered = [found[position][0] for position in order] + [memory for memory, _ in found[count:]]
    return [(memory, score) for memory, (_, score) in zip(ordered, found, strict=True)]
