"""Where sessions live: what a store is, and the one in RAM or a SQLite file. A change happens whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from mlmf.errors import UserError

T = TypeVar("T")
Kind = Literal["session", "turn", "answer", "pending", "insight", "revision"]
KINDS: tuple[Kind, ...] = ("session", "turn", "answer", "pending", "insight", "revision")
_BUSY_SECONDS = 30.0


class Records(ABC):
    """One user's records while a change is made. What is written shows at once here, and elsewhere when it is done."""

    def __init__(self) -> None:
        """Nothing is changed yet."""
        self.changes: dict[tuple[Kind, str], str | None] = {}
        """New values, None where a record goes."""

    def get(self, kind: Kind, name: str) -> str | None:
        """A record, or None where there is none."""
        return self.changes[kind, name] if (kind, name) in self.changes else self._read(kind, name)

    def all(self, kind: Kind) -> dict[str, str]:
        """Every record of a kind by its name."""
        changed = {name: value for (of, name), value in self.changes.items() if of == kind}
        merged: Mapping[str, str | None] = {**self._read_all(kind), **changed}
        return {name: value for name, value in merged.items() if value is not None}

    def set(self, kind: Kind, name: str, value: str) -> None:
        """Write a record."""
        self.changes[kind, name] = value

    def delete(self, kind: Kind, name: str) -> None:
        """Remove a record, if it is there."""
        self.changes[kind, name] = None

    @abstractmethod
    def _read(self, kind: Kind, name: str) -> str | None: ...

    @abstractmethod
    def _read_all(self, kind: Kind) -> dict[str, str]: ...


MIGRATIONS: tuple[Callable[[Records], None], ...] = ()
"""For each version of the records what makes those of one user records of the next; a store of older records is brought
up to date when it is opened. A step that was interrupted runs again over every user, so it leaves alone what it has changed
already."""


class SessionStore(ABC):
    """The records of many users; safe under threads, and where it is on disk or a server also under processes."""

    @abstractmethod
    def change(self, user: str, function: Callable[[Records], T]) -> T:
        """Let ``function`` read and change the user's records as one step, and return what it returns.

        It may be run again when another process changed the same user meanwhile, so it does nothing else. If it
        raises, nothing is changed.
        """

    @abstractmethod
    def users(self) -> list[str]:
        """Every user with a record, in the order of their names."""

    @abstractmethod
    def delete_user(self, user: str) -> None:
        """Remove everything about a user."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    @abstractmethod
    def _set_version(self, version: int) -> None:
        """Note the version of all records."""

    def _migrate(self, version: int, place: str) -> None:
        """Bring records of a version, which counts from 1, to the newest.

        Raises:
            UserError: they come from a newer version of this program.
        """
        newest = 1 + len(MIGRATIONS)
        if version > newest:
            raise UserError(
                f"session store {place}: made by a newer version of mlmf (schema {version}, this one knows {newest}); "
                "upgrade mlmf, or give another store"
            )
        for number, step in enumerate(MIGRATIONS[version - 1 :], start=version + 1):
            for user in self.users():
                self.change(user, step)
            self._set_version(number)


class SqliteStore(SessionStore):
    """In RAM, or in one file that survives kill -9 and may be shared by processes."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Open the file, or make it.

        Args:
            path: None keeps everything in RAM.

        Raises:
            UserError: the file is no store of CogMem, or one of a newer version.
        """
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            # a turn that was answered must not be lost, whatever ends the machine; what was deleted must be
            self._connection.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;"
            )
            with self._transaction():
                version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
                if version == 0:
                    version = self._create(str(path))
        except sqlite3.Error as error:
            raise UserError(f"session store {path}: it cannot be opened: {error}") from error
        self._migrate(version, str(path))

    def change(self, user: str, function: Callable[[Records], T]) -> T:
        """Let ``function`` change the user's records as one step."""
        with self._transaction():
            records = _SqliteRecords(self._connection, user)
            result = function(records)
            for (kind, name), value in records.changes.items():
                if value is None:
                    statement = "DELETE FROM records WHERE user = ? AND kind = ? AND name = ?"
                    self._connection.execute(statement, (user, kind, name))
                else:
                    statement = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)"
                    self._connection.execute(statement, (user, kind, name, value))
            return result

    def users(self) -> list[str]:
        """Every user with a record."""
        with self._lock:
            rows = self._connection.execute("SELECT DISTINCT user FROM records ORDER BY user").fetchall()
        return [row[0] for row in rows]

    def delete_user(self, user: str) -> None:
        """Remove everything about a user; freed pages are overwritten, and the log is emptied if nobody reads."""
        with self._transaction():
            self._connection.execute("DELETE FROM records WHERE user = ?", (user,))
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _create(self, path: str) -> int:
        """Make the table; returns the version of what will be in it."""
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise UserError(f"session store {path}: an SQLite file, but no store of CogMem; give another file")
        self._connection.execute(
            "CREATE TABLE records (user TEXT, kind TEXT, name TEXT, value TEXT NOT NULL,"
            " PRIMARY KEY (user, kind, name)) WITHOUT ROWID"
        )
        newest = 1 + len(MIGRATIONS)
        self._connection.execute(f"PRAGMA user_version = {newest}")
        return newest

    def _set_version(self, version: int) -> None:
        with self._lock:
            self._connection.execute(f"PRAGMA user_version = {version}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # one connection: its transactions take turns, and each is short, because no model is asked inside
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


class _SqliteRecords(Records):
    def __init__(self, connection: sqlite3.Connection, user: str) -> None:
        super().__init__()
        self._connection, self._user = connection, user

    def _read(self, kind: Kind, name: str) -> str | None:
        statement = "SELECT value FROM records WHERE user = ? AND kind = ? AND name = ?"
        row = self._connection.execute(statement, (self._user, kind, name)).fetchone()
        return row and row[0]

    def _read_all(self, kind: Kind) -> dict[str, str]:
        statement = "SELECT name, value FROM records WHERE user = ? AND kind = ?"
        return dict(self._connection.execute(statement, (self._user, kind)).fetchall())


def open_session_store(uri: str | None) -> SessionStore:
    """Open a store.

    Args:
        uri: None for RAM, ``redis://...`` (``rediss://``, ``unix://``) for Redis, else the path of a SQLite file.

    Raises:
        UserError: it cannot be opened.
    """
    if uri is not None and uri.startswith(("redis://", "rediss://", "unix://")):
        from mlmf.systems.cogmem.redis_store import RedisStore

        return RedisStore(uri)
    return SqliteStore(uri)
