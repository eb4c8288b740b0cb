"""Context-aware ingestion: messages are kept at once; facts are held against what is known before they are kept."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

import numpy as np

from mlmf.llm.structured import StructuredOutputError
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.encoder import Encoder
from mlmf.systems.cognis.extract import Extractor
from mlmf.systems.cognis.index import VectorIndex
from mlmf.systems.cognis.records import Candidate, Decision, Extraction, Memory, Similar, new_id
from mlmf.systems.cognis.store import Changes, DocumentStore
from mlmf.types import Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the facts of a session."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    """Answers of the language model that were not valid, even when repaired; their messages are kept as they are."""


class Ingestion:
    """Writes the memory of users. What one call does to a user is written whole or not at all."""

    def __init__(
        self, documents: DocumentStore, index: VectorIndex, encoder: Encoder, extractor: Extractor, *, similar: int = 5
    ) -> None:
        """Use stores, an encoder and an extractor.

        Args:
            documents: where memories go.
            index: finds similar facts.
            encoder: of the texts.
            extractor: finds facts and decides on them.
            similar: the most facts that a candidate is held against, beside those of its topic.
        """
        self._documents, self._index, self._encoder = documents, index, encoder
        self._extractor, self._similar = extractor, similar

    def record(self, user: str, session: Session) -> list[Memory]:
        """Keep the turns of a session as messages: they can be found from now on, before any fact is extracted."""
        messages = [_message(session, number) for number in range(len(session.turns))]
        if not messages:
            return []
        return self._documents.record(user, messages, self._encode(messages))

    def extract(self, user: str) -> Report:
        """Read the messages that were not read yet, session by session, those left by a process that died among them."""
        total: Counter[str] = Counter()
        while pending := self._documents.pending(user):
            for _, group in groupby(pending, key=lambda message: message.session):
                work = _Session(user, list(group), self._documents, self._index, self._encoder)
                changes, counts = work.run(self._extractor, self._similar)
                if not self._documents.commit(user, changes):
                    # another writer has read these messages or replaced a fact: look again. It got on, so this ends
                    break
                total += counts
        return Report(**total)

    def _encode(self, memories: Sequence[Memory]) -> FloatArray:
        return self._encoder.encode_documents([memory.searchable for memory in memories])


class _Session:
    """The extraction of one session, in which later facts see earlier ones before anything is written."""

    def __init__(
        self,
        user: str,
        messages: list[Memory],
        documents: DocumentStore,
        index: VectorIndex,
        encoder: Encoder,
    ) -> None:
        self._user, self._messages, self._documents, self._index = user, messages, documents, index
        self._encoder = encoder
        self._added: dict[str, tuple[Memory, FloatArray]] = {}
        self._closed: dict[str, datetime | None] = {}
        self._counts: Counter[str] = Counter()

    def run(self, extractor: Extractor, similar: int) -> tuple[Changes, Counter[str]]:
        extraction = self._ask(extractor, similar)
        candidates = extraction.candidates
        for reason in extraction.failures:
            self._failed(reason)
        if candidates:
            vectors = self._encoder.encode_documents([candidate.searchable for candidate in candidates])
            near = self._known(vectors, similar)
            topics: dict[str, list[Memory]] = {}
            for fact in self._documents.by_topic(self._user, sorted({c.topic for c in candidates} - {""})):
                topics.setdefault(fact.topic, []).append(fact)
            for candidate, vector, known in zip(candidates, vectors, near, strict=True):
                about = [Similar(fact, 1.0) for fact in topics.get(candidate.topic, ())]
                self._apply(extractor, candidate, vector, self._current([*about, *known], candidate, vector, similar))
        added = tuple(memory for memory, _ in self._added.values())
        stacked = np.stack([vector for _, vector in self._added.values()]) if added else None
        extracted = tuple(message.id for message in self._messages)
        return Changes(added, stacked, tuple(self._closed.items()), extracted), self._counts

    def _ask(self, extractor: Extractor, similar: int) -> Extraction:
        """The candidates, found with the facts nearest to the messages at hand."""
        known: dict[str, Memory] = {}
        if extractor.reads_known:
            _, vectors = self._documents.vectors(self._user, [message.id for message in self._messages])
            known = {near.memory.id: near.memory for row in self._known(vectors, similar) for near in row}
        return extractor.extract(self._messages, list(known.values()))

    def _known(self, vectors: FloatArray, similar: int) -> list[list[Similar]]:
        """For each vector the current facts nearest to it."""
        # twice as many, since versions that were replaced are found too
        matches = self._index.search(self._user, "fact", vectors, 2 * similar)
        ids = list(dict.fromkeys(name for row in matches for name, _ in row))
        facts = {memory.id: memory for memory in self._documents.get(self._user, ids) if memory.is_current}
        return [[Similar(facts[name], score) for name, score in row if name in facts][:similar] for row in matches]

    def _current(
        self, known: Sequence[Similar], candidate: Candidate, vector: FloatArray, similar: int
    ) -> list[Similar]:
        """Of the known facts and those of this session the ones that still stand: of the topic, then the nearest."""
        ours = [
            Similar(memory, 1.0 if candidate.topic and memory.topic == candidate.topic else float(vector @ other))
            for memory, other in self._added.values()
            if memory.is_current
        ]
        standing = {near.memory.id: near for near in [*known, *ours] if near.memory.id not in self._closed}
        of_topic = [near for near in standing.values() if candidate.topic and near.memory.topic == candidate.topic]
        others = sorted(
            (near for near in standing.values() if near not in of_topic),
            key=lambda near: (-near.score, near.memory.id),
        )
        return [*of_topic, *others[:similar]]

    def _apply(
        self, extractor: Extractor, candidate: Candidate, vector: FloatArray, similar: Sequence[Similar]
    ) -> None:
        try:
            decision = extractor.decide(candidate, similar)
        except StructuredOutputError as error:
            self._failed(str(error))
            return
        self._counts[_COUNTED[decision.action]] += 1
        if decision.replaces is not None:
            self._close(decision, candidate.said)
        if decision.action in ("ADD", "UPDATE"):
            fact = candidate.as_memory(decision.replaces)
            self._added[fact.id] = (fact, vector)

    def _close(self, decision: Decision, moment: datetime | None) -> None:
        assert decision.replaces is not None
        name = decision.replaces.id
        if name in self._added:
            memory, vector = self._added[name]
            self._added[name] = (replace(memory, is_current=False, closed=moment), vector)
        else:
            self._closed[name] = moment

    def _failed(self, reason: str) -> None:
        self._counts["failed"] += 1
        logger.warning("cognis, session %d: %s", self._messages[0].session, reason)


_COUNTED = {"ADD": "added", "UPDATE": "updated", "DELETE": "deleted", "NONE": "unchanged"}


def _message(session: Session, number: int) -> Memory:
    turn, name = session.turns[number], new_id()
    return Memory(
        id=name,
        kind="message",
        speaker=turn.speaker,
        text=turn.content,
        said=session.date,
        session=session.index,
        position=number,
        turn_ids=(turn.id,),
        chain=name,
    )
