"""What a document store is: all that Cognis knows of its users, but for the vector index, which follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mlmf.retrieval.base import FloatArray
from mlmf.systems.cognis.records import Memory


@dataclass(frozen=True, slots=True)
class Changes:
    """What one pass of extraction does to a user's memory."""

    added: tuple[Memory, ...] = ()
    vectors: FloatArray | None = None
    """Of the added ones, ``(N, D)``."""
    closed: tuple[tuple[str, datetime | None], ...] = ()
    """Ids of facts that are no longer current, and since when."""
    extracted: tuple[str, ...] = ()
    """Ids of the messages that were read."""


@dataclass(frozen=True, slots=True)
class Written:
    """A part of what a user's memory was given, in the order of writing: what a vector index must catch up with."""

    cursor: int
    """Where the next part begins."""
    memories: tuple[tuple[str, str], ...]
    """Id and kind of each."""
    vectors: FloatArray
    """``(N, D)``."""


class DocumentStore(ABC):
    """Memories of many users. Every call names one user and touches nothing of another's."""

    @abstractmethod
    def check_encoder(self, name: str, width: int) -> None:
        """Bind a new store to an encoder, or see that it is the one whose vectors the store holds.

        Raises:
            UserError: the store was filled with another encoder.
        """

    @abstractmethod
    def record(self, user: str, messages: Sequence[Memory], vectors: FloatArray) -> list[Memory]:
        """Append messages, all or none; they are pending until a :class:`Changes` names them.

        Returns:
            The messages with the positions they were given.
        """

    @abstractmethod
    def commit(self, user: str, changes: Changes) -> bool:
        """Apply changes if nothing they rest on has moved.

        Returns:
            False, and nothing is changed, where another writer has read the messages or closed a fact in between.
        """

    @abstractmethod
    def pending(self, user: str) -> list[Memory]:
        """Messages that no extraction has read, oldest first."""

    @abstractmethod
    def get(self, user: str, ids: Sequence[str]) -> list[Memory]:
        """The user's memories with these ids, in their order; others are passed over."""

    @abstractmethod
    def vectors(self, user: str, ids: Sequence[str]) -> tuple[list[str], FloatArray]:
        """Full-width vectors ``(N, D)`` of those of the ids that are there, with their ids, in the order of writing."""

    @abstractmethod
    def search_words(self, user: str, words: Sequence[str], count: int) -> list[str]:
        """Ids of the user's memories ranked by BM25 for any of the words, best first, at most ``count``."""

    @abstractmethod
    def by_topic(self, user: str, topics: Sequence[str]) -> list[Memory]:
        """Current facts about these topics, oldest first."""

    @abstractmethod
    def chains(self, user: str, chains: Sequence[str]) -> list[Memory]:
        """Every version of the facts with these chains, oldest first."""

    @abstractmethod
    def facts(self, user: str) -> list[Memory]:
        """Every fact of the user, current or not, oldest first."""

    @abstractmethod
    def speakers(self, user: str) -> tuple[str, ...]:
        """Who has said something, in the order of the alphabet."""

    @abstractmethod
    def latest(self, user: str) -> datetime | None:
        """When the newest dated message was said."""

    @abstractmethod
    def written_since(self, user: str, cursor: int, count: int) -> Written:
        """The next ``count`` memories at most that were written after a cursor, which is 0 at the start."""

    @abstractmethod
    def incarnation(self, user: str) -> str | None:
        """Changes when a user is deleted and comes again; None for a user who is not there."""

    @abstractmethod
    def cursor(self, user: str, index: str) -> int:
        """How far a lasting vector index has caught up; 0 if nothing is known of it."""

    @abstractmethod
    def set_cursor(self, user: str, index: str, cursor: int) -> None:
        """Note how far a lasting vector index has caught up."""

    @abstractmethod
    def delete_user(self, user: str) -> None:
        """Remove all that is known of a user, without a trace."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""


def open_document_store(uri: str | None) -> DocumentStore:
    """Open a store, or make it where there is none.

    Args:
        uri: a path of an SQLite file; None for one that is removed when the store is closed;
            ``opensearch://[name:password@]host:port/prefix`` (``opensearchs://`` for TLS) for indexes of an OpenSearch
            server.

    Raises:
        UserError: not a store of this version, not writable, or the server cannot be reached.
    """
    if uri is not None and uri.startswith(("opensearch://", "opensearchs://")):
        from mlmf.systems.cognis.opensearch import OpenSearchStore

        return OpenSearchStore(uri)
    from mlmf.systems.cognis.sqlite import SQLiteStore

    return SQLiteStore(None if uri is None else Path(uri))
