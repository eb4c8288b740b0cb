"""The vector store in Milvus: a folder of Milvus Lite on this machine, or a server, through ``pymilvus``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlmf.errors import UserError
from mlmf.hub import first_line
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.vector_store import Match, VectorStore, in_order
from mlmf.retrieval.vectors import DECIMALS

_BATCH = 1_000  # records of 768 numbers, 3 MB: far below the 64 MB that a message may have
_MOST = 16_384  # what Milvus returns at most for one search
_ID_BYTES = 512


class MilvusVectorStore(VectorStore):
    """One collection, partitioned by user, searched without approximation.

    What is stored is on disk when ``upsert`` returns; a Milvus Lite folder survives the death of its process. One
    process at a time may have a Milvus Lite folder open.
    """

    def __init__(self, uri: str, collection: str, width: int) -> None:
        """Open or make the collection.

        Args:
            uri: a path that ends in ``.db`` (Milvus Lite), or the address of a server.
            collection: its name.
            width: numbers in a vector.

        Raises:
            UserError: the extra ``milvus`` is not installed, the store cannot be opened, or its vectors have another
                width.
        """
        super().__init__(width)
        try:
            from pymilvus import MilvusClient, MilvusException
        except ImportError as error:
            raise UserError(
                "a vector store in Milvus needs pymilvus, which is not installed: pip install 'mlmf[milvus]'"
            ) from error
        self._collection, self._is_local = collection, not _is_server(uri)
        if self._is_local:
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._client = MilvusClient(uri)
            if not self._client.has_collection(collection):
                self._create()
            # a collection that was made before this process began is not in memory yet
            self._client.load_collection(collection)
        except (MilvusException, OSError, ValueError) as error:
            raise UserError(f"vector store {uri}: it cannot be opened: {first_line(error)}") from error
        found = self._width_in_store()
        if found != width:
            raise UserError(
                f"vector store {uri}: collection {collection} holds vectors of {found} numbers, the encoder gives "
                f"{width}; use that encoder, or another store"
            )

    def upsert(self, user: str, ids: Sequence[str], vectors: FloatArray) -> None:
        """Store records."""
        owner = _digest(user)
        rows = [
            {"key": _digest(user, record), "owner": owner, "id": record, "vector": np.asarray(vector, np.float32)}
            for record, vector in zip(ids, vectors, strict=True)
        ]
        for start in range(0, len(rows), _BATCH):
            self._client.upsert(self._collection, rows[start : start + _BATCH])

    def search(self, user: str, vectors: FloatArray, count: int) -> list[list[Match]]:
        """The user's nearest records."""
        if not len(vectors) or count < 1:
            return [[] for _ in vectors]
        asked = count
        while True:
            asked = min(asked + count, _MOST)
            found = self._search(user, vectors, asked)
            # Milvus breaks ties as it likes; all that tie with the last one wanted must be there for ids to decide
            if asked == _MOST or all(_holds_every_tie(matches, count, asked) for matches in found):
                return [in_order(matches, count) for matches in found]

    def delete(self, user: str, ids: Sequence[str] | None = None) -> None:
        """Remove some or all of the user's records.

        They are gone for every search. Their ids and vectors leave the disk when Milvus next merges the files they are in.
        """
        if ids is None:
            self._client.delete(self._collection, filter=_owned_by(user))
            if self._is_local:  # a server does that by itself, and refuses to do it often
                self._client.flush(self._collection)  # what was written since the last time is in the log alone
        elif ids:
            self._client.delete(self._collection, ids=[_digest(user, record) for record in ids])

    def count(self, user: str) -> int:
        """How many records the user has."""
        rows = self._client.query(self._collection, filter=_owned_by(user), output_fields=["count(*)"])
        return int(rows[0]["count(*)"])

    def close(self) -> None:
        """Close the connection; Milvus Lite writes out what it holds."""
        self._client.close()

    def _create(self) -> None:
        from pymilvus import DataType

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.VARCHAR, max_length=64, is_primary=True)
        schema.add_field("owner", DataType.VARCHAR, max_length=64, is_partition_key=True)
        schema.add_field("id", DataType.VARCHAR, max_length=_ID_BYTES)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.width)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="IP")
        # strong: a user's own write is seen by the search that follows it
        self._client.create_collection(self._collection, schema=schema, index_params=index, consistency_level="Strong")

    def _width_in_store(self) -> int:
        fields: list[dict[str, Any]] = self._client.describe_collection(self._collection)["fields"]
        return next(int(field["params"]["dim"]) for field in fields if field["name"] == "vector")

    def _search(self, user: str, vectors: FloatArray, limit: int) -> list[list[Match]]:
        found = self._client.search(
            self._collection,
            data=np.asarray(vectors, np.float32),
            filter=_owned_by(user),
            limit=limit,
            output_fields=["id"],
        )
        return [[(hit["entity"]["id"], round(float(hit["distance"]), DECIMALS)) for hit in hits] for hits in found]


def _is_server(uri: str) -> bool:
    return "://" in uri


def _digest(*parts: str) -> str:
    """Digest of names: no name of a user can end a filter early, and no two pairs of names meet in one key."""
    return hashlib.sha256(b"".join(hashlib.sha256(part.encode()).digest() for part in parts)).hexdigest()


def _owned_by(user: str) -> str:
    return f'owner == "{_digest(user)}"'


def _holds_every_tie(matches: Sequence[Match], count: int, asked: int) -> bool:
    return len(matches) < asked or matches[-1][1] < matches[count - 1][1]
