"""Cognis as a library: the memories of many users behind a handful of calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mlmf.config.cognis import CognisSettings
from mlmf.errors import UserError
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.rerank import Reranker
from mlmf.systems.cognis.extract import Extractor, RuleExtractor
from mlmf.systems.cognis.index import VectorIndex
from mlmf.systems.cognis.ingest import Ingestion, Report
from mlmf.systems.cognis.records import Memory
from mlmf.systems.cognis.retrieve import Found, Retrieval
from mlmf.systems.cognis.store import open_document_store
from mlmf.systems.cognis.timing import StageTimes
from mlmf.types import Query, Session


class CognisMemory:
    """Long-term memory of many users; safe to use from several threads, and with SQLite from several processes.

    >>> memory = CognisMemory(encoder, encoder_name="all-minilm-l6-v2")  # doctest: +SKIP
    >>> memory.add("user-7", session)  # doctest: +SKIP
    >>> memory.search("user-7", [Query("Where does Anna live?")], 5)  # doctest: +SKIP
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        encoder_name: str,
        settings: CognisSettings | None = None,
        extractor: Extractor | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """Open the stores that the settings name.

        Args:
            encoder: of all texts.
            encoder_name: what the stores remember it by; they accept no other from then on.
            settings: where memories are kept and how they are found.
            extractor: what finds facts; by default the rules for English.
            reranker: a cross-encoder for the last stage.

        Raises:
            UserError: a store cannot be opened, or was filled with another encoder.
        """
        settings = settings or CognisSettings()
        self._encoder = encoder
        width = int(encoder.encode_queries(["width"]).shape[1])
        self._documents = open_document_store(settings.documents)
        self._documents.check_encoder(encoder_name, width)
        self._index = VectorIndex(
            self._documents,
            settings.vectors,
            full=width,
            width=settings.shortlist_width if settings.use_shortlist else width,
            shortlist=settings.shortlist,
        )
        self._ingestion = Ingestion(
            self._documents, self._index, encoder, extractor or RuleExtractor(), similar=settings.similar
        )
        self._retrieval = Retrieval(self._documents, self._index, encoder, settings, reranker)

    @property
    def times(self) -> StageTimes:
        """How long the stages of the searches took so far."""
        return self._retrieval.times

    def record(self, user: str, session: Session) -> list[Memory]:
        """Keep what was said; it can be found from now on. Facts are taken from it by :meth:`extract`."""
        return self._ingestion.record(user, session)

    def extract(self, user: str) -> Report:
        """Take facts from all that was recorded and not read yet."""
        return self._ingestion.extract(user)

    def add(self, user: str, session: Session) -> Report:
        """:meth:`record`, then :meth:`extract`."""
        self.record(user, session)
        return self.extract(user)

    def search(
        self, user: str, queries: Sequence[Query], count: int, *, as_of: datetime | None = None
    ) -> list[list[Found]]:
        """The memories that fit each question best, best first; ``as_of``: from what was known at that moment."""
        return self._retrieval.search(user, queries, count, as_of=as_of)

    def known_on(self, user: str, moment: datetime) -> list[Memory]:
        """Every fact that was known at a moment, oldest first."""
        return [memory for memory in self._documents.facts(user) if memory.known_on(moment)]

    def history(self, user: str, memory_id: str) -> list[Memory]:
        """Every version of a fact, oldest first.

        Raises:
            UserError: the user has no such memory.
        """
        found = self._documents.get(user, [memory_id])
        if not found:
            raise UserError(f"user {user!r} has no memory {memory_id!r}")
        return self._documents.chains(user, [found[0].chain])

    def delete_user(self, user: str) -> None:
        """Remove all that is known of a user. If it is interrupted, call it again.

        Other processes that hold vectors in memory forget the user's with their next search.
        """
        self._documents.delete_user(user)
        self._index.delete_user(user)

    def close(self) -> None:
        """Close the stores."""
        self._retrieval.close()
        self._index.close()
        self._documents.close()
