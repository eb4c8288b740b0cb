"""Where sessions live: in RAM or a SQLite file, or in Redis. A change of one user's records happens whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from mlmf.errors import UserError

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")
Kind = Literal["session", "turn", "answer", "pending", "insight"]
KINDS: tuple[Kind, ...] = ("session", "turn", "answer", "pending", "insight")
SCHEMA_VERSION = 1
_BUSY_SECONDS = 30.0
_PREFIX = f"mlmf:cogmem:{SCHEMA_VERSION}"


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


class SqliteStore(SessionStore):
    """In RAM, or in one file that survives kill -9 and may be shared by processes."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Open the file, or make it.

        Args:
            path: None keeps everything in RAM.

        Raises:
            UserError: the file is no store, or one of a newer version.
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
                version = self._connection.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    self._connection.execute(
                        "CREATE TABLE records (user TEXT, kind TEXT, name TEXT, value TEXT NOT NULL,"
                        " PRIMARY KEY (user, kind, name)) WITHOUT ROWID"
                    )
                    self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        except sqlite3.Error as error:
            raise UserError(f"session store {path}: it cannot be opened: {error}") from error
        if version > SCHEMA_VERSION:
            raise UserError(
                f"session store {path}: it has version {version}, this mlmf knows up to {SCHEMA_VERSION}; update mlmf"
            )

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
        """Remove everything about a user."""
        with self._transaction():
            self._connection.execute("DELETE FROM records WHERE user = ?", (user,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

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


class RedisStore(SessionStore):
    """In Redis: one hash for each kind of record of each user. A change that met another one is made again."""

    def __init__(self, url: str) -> None:
        """Connect.

        Args:
            url: ``redis://host:6379/0``; how much a restart of the server keeps is the server's setting.

        Raises:
            UserError: the extra ``redis`` is not installed, or no server answers.
        """
        try:
            import redis
        except ImportError as error:
            raise UserError(
                "sessions in Redis need the package redis, which is not installed: pip install 'mlmf[redis]'"
            ) from error
        self._conflict = redis.WatchError
        try:
            self._redis: Redis = redis.Redis.from_url(url, decode_responses=True)
            self._redis.ping()
        except (redis.RedisError, ValueError) as error:
            raise UserError(f"session store {url.rpartition('@')[2]}: no Redis server answers: {error}") from error

    def change(self, user: str, function: Callable[[Records], T]) -> T:
        """Let ``function`` change the user's records as one step."""
        while True:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.watch(*(_hash(kind, user) for kind in KINDS))
                records = _RedisRecords(pipe, user)
                result = function(records)
                pipe.multi()
                for (kind, name), value in records.changes.items():
                    if value is None:
                        pipe.hdel(_hash(kind, user), name)
                    else:
                        pipe.hset(_hash(kind, user), name, value)
                        pipe.sadd(f"{_PREFIX}:users", user)
                try:
                    pipe.execute()
                except self._conflict:
                    continue
                return result

    def users(self) -> list[str]:
        """Every user who was ever written and not deleted."""
        return sorted(map(str, self._redis.smembers(f"{_PREFIX}:users")))

    def delete_user(self, user: str) -> None:
        """Remove everything about a user."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(*(_hash(kind, user) for kind in KINDS))
            pipe.srem(f"{_PREFIX}:users", user)
            pipe.execute()

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()


class _RedisRecords(Records):
    def __init__(self, redis: Redis, user: str) -> None:
        super().__init__()
        self._redis, self._user = redis, user

    def _read(self, kind: Kind, name: str) -> str | None:
        value = self._redis.hget(_hash(kind, self._user), name)
        return None if value is None else str(value)

    def _read_all(self, kind: Kind) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._redis.hgetall(_hash(kind, self._user)).items()}


def _hash(kind: Kind, user: str) -> str:
    # the user comes last, so that no name can reach into another user's keys
    return f"{_PREFIX}:{kind}:{user}"


def open_session_store(uri: str | None) -> SessionStore:
    """Open a store.

    Args:
        uri: None for RAM, ``redis://...`` (``rediss://``, ``unix://``) for Redis, else the path of a SQLite file.

    Raises:
        UserError: it cannot be opened.
    """
    if uri is not None and uri.startswith(("redis://", "rediss://", "unix://")):
        return RedisStore(uri)
    return SqliteStore(uri)
