"""The document store in OpenSearch, through ``opensearch-py``, for more users than a file should hold.

What a server can do less well than a file, and what follows: one bulk request is not one transaction, so additions are sent
before the changes that rest on them, and taken back where another writer was faster; a process that dies between the two
leaves new facts beside the ones they replace. BM25 counts words over all users of a shard, so ranks, though never
results, depend on other users. An index in another process catches up by the writers' clocks, which must agree.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from mlmf.errors import UserError
from mlmf.hub import first_line
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis.records import Memory, made_at
from mlmf.systems.cognis.store import Changes, DocumentStore, Written

_PAGE = 5_000  # a search gives 10,000 hits at most
_KEYWORDS = ("user", "id", "kind", "speaker", "turn_ids", "chain", "entities", "topic", "replaces_id")
_MAPPING: dict[str, Any] = {
    "settings": {"analysis": {"analyzer": {"default": {"type": "english"}}}},
    "mappings": {
        "dynamic": "strict",
        "properties": {name: {"type": "keyword"} for name in _KEYWORDS}
        | {name: {"type": "long"} for name in ("session", "position", "version", "written")}
        | {name: {"type": "boolean"} for name in ("is_current", "pending")}
        | {name: {"type": "date"} for name in ("said", "closed")}
        | {
            "text": {"type": "keyword", "index": False, "doc_values": False},
            "searchable": {"type": "text"},
            "spans": {"type": "object", "enabled": False},
            "vector": {"type": "binary"},
        },
    },
}


MIGRATIONS: tuple[Callable[[OpenSearchStore], None], ...] = ()
"""For each version of the indexes what makes them those of the next; a step that was interrupted is made again."""


class OpenSearchStore(DocumentStore):
    """Two indexes of a server: ``<prefix>-memories``, and ``<prefix>-users`` with a record for each user."""

    def __init__(self, uri: str) -> None:
        """Connect, and make the indexes where they are missing.

        Args:
            uri: ``opensearch://[name:password@]host:port/prefix``; ``opensearchs://`` for TLS.

        Raises:
            UserError: the extra ``opensearch`` is not installed, the server cannot be reached, or its indexes are of a newer
                version.
        """
        try:
            from opensearchpy import ConflictError, NotFoundError, OpenSearch, OpenSearchException
        except ImportError as error:
            raise UserError(
                "documents in OpenSearch need opensearch-py, which is not installed: pip install 'mlmf[opensearch]'"
            ) from error
        parts = urlsplit(uri)
        prefix = parts.path.strip("/") or "cognis"
        self._memories, self._users = f"{prefix}-memories", f"{prefix}-users"
        self._missing, self._conflict = NotFoundError, ConflictError
        self._where = f"{parts.hostname}:{parts.port or 9200}/{prefix}"
        login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        self._client = OpenSearch(
            hosts=[{"host": parts.hostname, "port": parts.port or 9200}],
            http_auth=login,
            use_ssl=parts.scheme == "opensearchs",
            timeout=60,
        )
        try:
            for name, body in ((self._memories, _MAPPING), (self._users, {"mappings": {"enabled": False}})):
                if not self._client.indices.exists(index=name):
                    # 400: another process has made it in between
                    self._client.indices.create(index=name, body=body, ignore=400)
            self._migrate()
        except OpenSearchException as error:
            raise UserError(f"documents {self._where}: the server cannot be used: {first_line(error)}") from error

    def _migrate(self) -> None:
        newest = 1 + len(MIGRATIONS)
        with suppress(self._conflict):  # they have a version already
            self._client.create(index=self._users, id="schema", body={"version": newest})
        version = int(self._client.get(index=self._users, id="schema")["_source"]["version"])
        if version > newest:
            raise UserError(
                f"documents {self._where}: made by a newer version of mlmf (schema {version}, this one knows {newest}); "
                "upgrade mlmf, or give another prefix"
            )
        for number, step in enumerate(MIGRATIONS[version - 1 :], start=version + 1):
            step(self)
            self._client.index(index=self._users, id="schema", body={"version": number})

    def check_encoder(self, name: str, width: int) -> None:
        """Bind the indexes to an encoder, or compare."""
        try:
            self._client.create(index=self._users, id="encoder", body={"name": name, "width": width})
        except self._conflict:
            known = self._client.get(index=self._users, id="encoder")["_source"]
            if known != {"name": name, "width": width}:
                raise UserError(
                    f"documents {self._where}: filled with encoder {known['name']!r} ({known['width']} numbers a "
                    f"vector), not with {name!r} ({width}); use that encoder, or another prefix"
                ) from None

    def record(self, user: str, messages: Sequence[Memory], vectors: FloatArray) -> list[Memory]:
        """Append messages; those that were sent are taken back where one cannot be stored."""
        with suppress(self._conflict):  # the user is known
            self._client.create(
                index=self._users, id=_key(user), body={"incarnation": uuid.uuid4().hex, "cursors": {}}
            )
        start = self._client.count(index=self._memories, body=_all_of(user, {"term": {"kind": "message"}}))["count"]
        placed = [replace(message, position=start + i) for i, message in enumerate(messages)]
        if not self._send([_creation(user, m, v, pending=True) for m, v in zip(placed, vectors, strict=True)]):
            self._take_back(placed)
            raise RuntimeError(f"documents {self._where}: messages could not be stored")
        return placed

    def commit(self, user: str, changes: Changes) -> bool:
        """Apply changes, additions first; every change names the revision it rests on."""
        revised = {name: {"is_current": False, "closed": _iso(moment)} for name, moment in changes.closed}
        revised |= {name: {"pending": False} for name in changes.extracted}
        found = {hit["_id"]: hit for hit in self._hits(user, {"ids": {"values": list(revised)}}, size=len(revised))}
        if any(not found.get(name, {"_source": {}})["_source"].get("is_current") for name, _ in changes.closed):
            return False
        if any(not found.get(name, {"_source": {}})["_source"].get("pending") for name in changes.extracted):
            return False
        vectors = changes.vectors if changes.vectors is not None else np.zeros((0, 0), np.float32)
        added = [_creation(user, m, v, pending=False) for m, v in zip(changes.added, vectors, strict=True)]
        updates = [
            (
                {
                    "update": {
                        "_id": name,
                        "if_seq_no": found[name]["_seq_no"],
                        "if_primary_term": found[name]["_primary_term"],
                    }
                },
                {"doc": values},
            )
            for name, values in revised.items()
        ]
        if self._send(added) and self._send(updates):
            return True
        self._take_back(changes.added)
        return False

    def pending(self, user: str) -> list[Memory]:
        """Messages to read."""
        return self._records(user, {"term": {"pending": True}})

    def get(self, user: str, ids: Sequence[str]) -> list[Memory]:
        """Memories by id."""
        found = {memory.id: memory for memory in self._records(user, {"ids": {"values": list(ids)}})}
        return [found[name] for name in ids if name in found]

    def vectors(self, user: str, ids: Sequence[str]) -> tuple[list[str], FloatArray]:
        """Vectors by id."""
        hits = list(self._hits(user, {"ids": {"values": list(ids)}}, source=["vector"], size=len(ids)))
        return [hit["_id"] for hit in hits], _matrix(hits)

    def search_words(self, user: str, words: Sequence[str], count: int) -> list[str]:
        """BM25 by Lucene, over stemmed words."""
        if not words or count < 1:
            return []
        body = _all_of(user)
        body["query"]["bool"]["must"] = {"match": {"searchable": {"query": " ".join(words), "operator": "or"}}}
        body |= {"size": count, "_source": False, "sort": ["_score", {"id": "asc"}]}
        return [hit["_id"] for hit in self._client.search(index=self._memories, body=body)["hits"]["hits"]]

    def by_topic(self, user: str, topics: Sequence[str]) -> list[Memory]:
        """Current facts of topics."""
        wanted = [topic for topic in topics if topic]
        return self._records(user, {"terms": {"topic": wanted}}, {"term": {"is_current": True}}) if wanted else []

    def chains(self, user: str, chains: Sequence[str]) -> list[Memory]:
        """All versions of facts."""
        return self._records(user, {"terms": {"chain": list(chains)}})

    def facts(self, user: str) -> list[Memory]:
        """All facts."""
        return self._records(user, {"term": {"kind": "fact"}})

    def speakers(self, user: str) -> tuple[str, ...]:
        """Who speaks."""
        body = _all_of(user) | {"size": 0, "aggs": {"speakers": {"terms": {"field": "speaker", "size": 10_000}}}}
        found = self._client.search(index=self._memories, body=body)["aggregations"]["speakers"]["buckets"]
        return tuple(sorted(bucket["key"] for bucket in found))

    def latest(self, user: str) -> datetime | None:
        """The newest date."""
        newest = {"size": 1, "sort": [{"said": "desc"}], "_source": ["said"]}
        body = _all_of(user, {"exists": {"field": "said"}}) | newest
        hits = self._client.search(index=self._memories, body=body)["hits"]["hits"]
        return _moment(hits[0]["_source"]["said"]) if hits else None

    def written_since(self, user: str, cursor: int, count: int) -> Written:
        """Memories by the time in their ids."""
        newer = {"range": {"written": {"gt": cursor}}}
        hits = list(self._hits(user, newer, source=["kind", "vector"], size=count, pages=1))
        last = made_at(hits[-1]["_id"]) if hits else cursor
        return Written(last, tuple((hit["_id"], hit["_source"]["kind"]) for hit in hits), _matrix(hits))

    def incarnation(self, user: str) -> str | None:
        """What the user's record was given when it was made."""
        found = self._user(user)
        return None if found is None else str(found["incarnation"])

    def cursor(self, user: str, index: str) -> int:
        """How far an index is."""
        return int((self._user(user) or {"cursors": {}})["cursors"].get(index, 0))

    def set_cursor(self, user: str, index: str, cursor: int) -> None:
        """Note how far an index is."""
        try:
            self._client.update(index=self._users, id=_key(user), body={"doc": {"cursors": {index: cursor}}})
        except self._missing:
            return  # deleted in between

    def delete_user(self, user: str) -> None:
        """Remove the user's documents and record; the server clears its files when it merges segments."""
        self._client.delete_by_query(index=self._memories, body=_all_of(user), refresh=True, conflicts="proceed")
        self._client.delete(index=self._users, id=_key(user), ignore=404)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _user(self, user: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.get(index=self._users, id=_key(user))["_source"]
        except self._missing:
            return None
        return found

    def _records(self, user: str, *conditions: dict[str, Any]) -> list[Memory]:
        return [_memory(hit["_source"]) for hit in self._hits(user, *conditions, excluded=["vector"])]

    def _hits(
        self,
        user: str,
        *conditions: dict[str, Any],
        source: Sequence[str] = ("*",),
        excluded: Sequence[str] = (),
        size: int = _PAGE,
        pages: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Documents in the order of their ids, page by page."""
        size = max(1, min(size, _PAGE))
        body = _all_of(user, *conditions) | {
            "size": size,
            "sort": [{"id": "asc"}],
            "_source": {"includes": list(source), "excludes": list(excluded)},
            "seq_no_primary_term": True,
        }
        while pages is None or pages > 0:
            hits = self._client.search(index=self._memories, body=body)["hits"]["hits"]
            yield from hits
            if len(hits) < size:
                return
            body["search_after"] = hits[-1]["sort"]
            pages = None if pages is None else pages - 1

    def _send(self, actions: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> bool:
        """One bulk request, visible to searches when it returns; whether every action succeeded."""
        if not actions:
            return True
        lines = [part for action in actions for part in action]
        return not self._client.bulk(index=self._memories, body=lines, refresh=True)["errors"]

    def _take_back(self, memories: Sequence[Memory]) -> None:
        lines = [{"delete": {"_id": memory.id}} for memory in memories]
        if lines:
            self._client.bulk(index=self._memories, body=lines, refresh=True)


def _all_of(user: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    return {"query": {"bool": {"filter": [{"term": {"user": user}}, *conditions]}}}


def _creation(
    user: str, memory: Memory, vector: FloatArray, *, pending: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    document = asdict(memory) | {
        "user": user,
        "said": _iso(memory.said),
        "closed": _iso(memory.closed),
        "spans": {"days": [[span.start.isoformat(), span.end.isoformat()] for span in memory.spans]},
        "searchable": memory.searchable,
        "pending": pending,
        "written": made_at(memory.id),
        "vector": base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode(),
    }
    return {"create": {"_id": memory.id}}, document


def _memory(source: dict[str, Any]) -> Memory:
    left_out = ("user", "searchable", "pending", "written")
    fields = {name: value for name, value in source.items() if name not in left_out}
    return Memory(
        **fields
        | {
            "said": _moment(source["said"]),
            "closed": _moment(source["closed"]),
            "turn_ids": tuple(source["turn_ids"]),
            "entities": tuple(source["entities"]),
            "spans": tuple(Span(*map(date.fromisoformat, days)) for days in source["spans"]["days"]),
        }
    )


def _matrix(hits: Sequence[dict[str, Any]]) -> FloatArray:
    rows = [np.frombuffer(base64.b64decode(hit["_source"]["vector"]), "<f4") for hit in hits]
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


def _key(user: str) -> str:
    return hashlib.sha256(user.encode()).hexdigest()


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
