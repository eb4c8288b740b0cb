"""The document store in one SQLite file: records, version chains and vectors in tables, BM25 in FTS5.

Every user's words are indexed in an FTS5 table of their own: what another user writes changes no score, and deleting a user
drops the table whole. The write-ahead log lets readers go on beside the one writer; a process that dies in the middle
of a write leaves the file as it was before it. SQLite reads every table's name when it opens a file, so some thousands
of users are the most a file should hold.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mlmf.errors import UserError
from mlmf.paths import check_writable_folder
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis.records import Memory
from mlmf.systems.cognis.schema import migrate
from mlmf.systems.cognis.store import Changes, DocumentStore, Written

_COLUMNS = (
    "id", "kind", "speaker", "text", "said", "session", "position", "turn_ids", "chain", "entities", "spans", "topic",
    "version", "replaces_id", "is_current", "closed",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM memories WHERE user = ? AND"
_INSERT = (
    f"INSERT INTO memories (user, pending, {', '.join(_COLUMNS)}) VALUES (?, ?, {', '.join('?' * len(_COLUMNS))})"
)
_WAIT_SECONDS = 60.0
_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "mmap_size = 1073741824",  # records lie all over the file: reading them in place spares a copy for each thread
)


class SQLiteStore(DocumentStore):
    """One file, a connection a thread; several processes may have it open."""

    def __init__(self, path: Path | None) -> None:
        """Open or make the file.

        Args:
            path: the file; None for a temporary one.

        Raises:
            UserError: not a store of Cognis, of a newer version, or not writable.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="cognis-") if path is None else None
        self.path = Path(self._scratch.name) / "cognis.db" if self._scratch else Path(path or "")
        check_writable_folder(self.path.parent, "documents")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        try:
            migrate(self._connection, self.path)
        except UserError:
            self.close()
            raise
        except sqlite3.DatabaseError as error:
            self.close()
            raise UserError(f"documents {self.path}: not an SQLite file that can be written: {error}") from error

    def check_encoder(self, name: str, width: int) -> None:
        """Bind the file to an encoder, or compare."""
        wanted = json.dumps([name, width])
        with self._write() as connection:
            connection.execute("INSERT OR IGNORE INTO settings VALUES ('encoder', ?)", (wanted,))
            (found,) = connection.execute("SELECT value FROM settings WHERE name = 'encoder'").fetchone()
        if found != wanted:
            known, known_width = json.loads(found)
            raise UserError(
                f"documents {self.path}: filled with encoder {known!r} ({known_width} numbers a vector), not with "
                f"{name!r} ({width}); use that encoder, or another file"
            )

    def record(self, user: str, messages: Sequence[Memory], vectors: FloatArray) -> list[Memory]:
        """Append messages in one transaction."""
        with self._write() as connection:
            number = self._number(user) or self._new_user(connection, user)
            last = connection.execute("SELECT max(position) FROM memories WHERE user = ?", (number,)).fetchone()[0]
            start = 0 if last is None else last + 1
            placed = [replace(message, position=start + i) for i, message in enumerate(messages)]
            _insert(connection, number, placed, vectors, pending=True)
        return placed

    def commit(self, user: str, changes: Changes) -> bool:
        """Apply changes in one transaction, unless their ground has moved."""
        with self._write() as connection:
            number = self._number(user)
            if number is None:
                return False
            for name in changes.extracted:
                done = connection.execute(
                    "UPDATE memories SET pending = 0 WHERE user = ? AND id = ? AND pending", (number, name)
                )
                if done.rowcount != 1:
                    connection.execute("ROLLBACK")
                    return False
            for name, moment in changes.closed:
                done = connection.execute(
                    "UPDATE memories SET is_current = 0, closed = ? WHERE user = ? AND id = ? AND is_current",
                    (_iso(moment), number, name),
                )
                if done.rowcount != 1:
                    connection.execute("ROLLBACK")
                    return False
            if changes.vectors is not None:
                _insert(connection, number, changes.added, changes.vectors, pending=False)
        return True

    def pending(self, user: str) -> list[Memory]:
        """Messages to read."""
        return self._memories(user, "pending ORDER BY row", ())

    def get(self, user: str, ids: Sequence[str]) -> list[Memory]:
        """Memories by id."""
        found = {memory.id: memory for memory in self._memories(user, f"id IN ({_marks(ids)})", ids)}
        return [found[name] for name in ids if name in found]

    def vectors(self, user: str, ids: Sequence[str]) -> tuple[list[str], FloatArray]:
        """Vectors by id."""
        rows = self._connection.execute(
            "SELECT id, vector FROM memories JOIN vectors USING (row) "
            f"WHERE user = (SELECT number FROM users WHERE name = ?) AND id IN ({_marks(ids)}) ORDER BY id",
            (user, *ids),
        ).fetchall()
        return [row[0] for row in rows], _matrix([row[1] for row in rows])

    def search_words(self, user: str, words: Sequence[str], count: int) -> list[str]:
        """BM25 by FTS5, over stemmed words."""
        number = self._number(user)
        if number is None or not words or count < 1:
            return []
        either = " OR ".join('"' + word.replace('"', '""') + '"' for word in words)
        rows = self._connection.execute(
            f"SELECT id FROM (SELECT rowid, rank FROM words_{number} WHERE words_{number} MATCH ? "
            "ORDER BY rank, rowid LIMIT ?) AS found JOIN memories ON memories.row = found.rowid "
            "ORDER BY found.rank, found.rowid",
            (either, count),
        )
        return [row[0] for row in rows]

    def by_topic(self, user: str, topics: Sequence[str]) -> list[Memory]:
        """Current facts of topics."""
        return self._memories(user, f"topic IN ({_marks(topics)}) AND topic <> '' AND is_current ORDER BY row", topics)

    def chains(self, user: str, chains: Sequence[str]) -> list[Memory]:
        """All versions of facts."""
        return self._memories(user, f"chain IN ({_marks(chains)}) ORDER BY row", chains)

    def facts(self, user: str) -> list[Memory]:
        """All facts."""
        return self._memories(user, "kind = 'fact' ORDER BY row", ())

    def speakers(self, user: str) -> tuple[str, ...]:
        """Who speaks; each name is looked up in the index after the one before it, so it is quick with many messages."""
        found: list[str] = []
        while True:
            after = found[-1] if found else ""
            row = self._connection.execute(
                "SELECT min(speaker) FROM memories WHERE user = (SELECT number FROM users WHERE name = ?) "
                "AND speaker > ?",
                (user, after),
            ).fetchone()
            if row[0] is None:
                return tuple(found)
            found.append(row[0])

    def latest(self, user: str) -> datetime | None:
        """The newest date."""
        row = self._connection.execute(
            "SELECT max(said) FROM memories WHERE user = (SELECT number FROM users WHERE name = ?)", (user,)
        ).fetchone()
        return _moment(row[0])

    def written_since(self, user: str, cursor: int, count: int) -> Written:
        """Memories by row, which grows with every write: writers take turns."""
        rows = self._connection.execute(
            "SELECT row, id, kind, vector FROM memories JOIN vectors USING (row) "
            "WHERE user = (SELECT number FROM users WHERE name = ?) AND row > ? ORDER BY row LIMIT ?",
            (user, cursor, count),
        ).fetchall()
        last = rows[-1][0] if rows else cursor
        return Written(last, tuple((row[1], row[2]) for row in rows), _matrix([row[3] for row in rows]))

    def incarnation(self, user: str) -> str | None:
        """The user's number."""
        number = self._number(user)
        return None if number is None else str(number)

    def cursor(self, user: str, index: str) -> int:
        """How far an index is."""
        row = self._connection.execute(
            "SELECT row FROM cursors WHERE user = (SELECT number FROM users WHERE name = ?) AND name = ?",
            (user, index),
        ).fetchone()
        return int(row[0]) if row else 0

    def set_cursor(self, user: str, index: str, cursor: int) -> None:
        """Note how far an index is."""
        with self._write() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO cursors SELECT number, ?, ? FROM users WHERE name = ?", (index, cursor, user)
            )

    def delete_user(self, user: str) -> None:
        """Remove the user's rows and words; freed pages are overwritten, and the log is emptied if nobody reads."""
        with self._write() as connection:
            number = self._number(user)
            if number is None:
                return
            connection.execute(f"DROP TABLE words_{number}")
            connection.execute("DELETE FROM users WHERE number = ?", (number,))
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close every thread's connection; a temporary file is removed."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()
        if self._scratch:
            self._scratch.cleanup()

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            # autocommit: transactions begin and end where this file says so; another thread only ever closes it
            connection = sqlite3.connect(
                self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connections.append(connection)
            for setting in _SETTINGS:
                connection.execute(f"PRAGMA {setting}").fetchall()
            self._local.connection = connection
        return connection

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer is inside of; it is undone if the block raises or has rolled back."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # a full disk has ended it already
                connection.execute("ROLLBACK")
            raise
        if connection.in_transaction:
            connection.execute("COMMIT")

    def _number(self, user: str) -> int | None:
        row = self._connection.execute("SELECT number FROM users WHERE name = ?", (user,)).fetchone()
        return None if row is None else int(row[0])

    def _new_user(self, connection: sqlite3.Connection, user: str) -> int:
        number = int(connection.execute("INSERT INTO users (name) VALUES (?) RETURNING number", (user,)).fetchone()[0])
        # contentless: the text itself is in memories
        connection.execute(
            f"CREATE VIRTUAL TABLE words_{number} USING fts5 (text, content='', tokenize='porter unicode61')"
        )
        return number

    def _memories(self, user: str, condition: str, parameters: Sequence[str]) -> list[Memory]:
        number = self._number(user)
        if number is None:
            return []
        return [_memory(row) for row in self._connection.execute(f"{_SELECT} {condition}", (number, *parameters))]


def _insert(
    connection: sqlite3.Connection, number: int, memories: Sequence[Memory], vectors: FloatArray, *, pending: bool
) -> None:
    for memory, vector in zip(memories, vectors, strict=True):
        row = connection.execute(_INSERT, (number, int(pending), *_values(memory))).lastrowid
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (row, np.asarray(vector, np.float32).tobytes()))
        connection.execute(f"INSERT INTO words_{number} (rowid, text) VALUES (?, ?)", (row, memory.searchable))


def _values(memory: Memory) -> tuple[Any, ...]:
    spans = [[span.start.isoformat(), span.end.isoformat()] for span in memory.spans]
    return (
        memory.id, memory.kind, memory.speaker, memory.text, _iso(memory.said), memory.session, memory.position,
        json.dumps(memory.turn_ids), memory.chain, json.dumps(memory.entities), json.dumps(spans), memory.topic,
        memory.version, memory.replaces_id, int(memory.is_current), _iso(memory.closed),
    )  # fmt: skip


def _memory(row: Sequence[Any]) -> Memory:
    fields = dict(zip(_COLUMNS, row, strict=True))
    spans = tuple(Span(*map(date.fromisoformat, span)) for span in json.loads(fields["spans"]))
    return Memory(
        **fields
        | {
            "said": _moment(fields["said"]),
            "closed": _moment(fields["closed"]),
            "turn_ids": tuple(json.loads(fields["turn_ids"])),
            "entities": tuple(json.loads(fields["entities"])),
            "spans": spans,
            "is_current": bool(fields["is_current"]),
        }
    )


def _matrix(blobs: Sequence[bytes]) -> FloatArray:
    return (
        np.frombuffer(b"".join(blobs), np.float32).reshape(len(blobs), -1) if blobs else np.zeros((0, 0), np.float32)
    )


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds")


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
