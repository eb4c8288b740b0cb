"""Sessions in Redis, through ``redis-py``: for many processes, on as many machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlmf.errors import UserError
from mlmf.systems.cogmem.stores import KINDS, MIGRATIONS, Kind, Records, SessionStore, T

if TYPE_CHECKING:
    from redis import Redis

_PREFIX = "mlmf:cogmem"


class RedisStore(SessionStore):
    """In Redis: one hash for each kind of record of each user. A change that met another one is made again."""

    def __init__(self, url: str) -> None:
        """Connect.

        Args:
            url: ``redis://host:6379/0``; how much a restart of the server keeps is the server's setting.

        Raises:
            UserError: the extra ``redis`` is not installed, no server answers, or its records are of a newer version.
        """
        try:
            import redis
        except ImportError as error:
            raise UserError(
                "sessions in Redis need the package redis, which is not installed: pip install 'mlmf[redis]'"
            ) from error
        self._conflict = redis.WatchError
        place = url.rpartition("@")[2]
        try:
            self._redis: Redis = redis.Redis.from_url(url, decode_responses=True)
            self._redis.set(f"{_PREFIX}:version", 1 + len(MIGRATIONS), nx=True)
            version = int(str(self._redis.get(f"{_PREFIX}:version")))
        except (redis.RedisError, ValueError) as error:
            raise UserError(f"session store {place}: no Redis server answers: {error}") from error
        self._migrate(version, place)

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

    def _set_version(self, version: int) -> None:
        self._redis.set(f"{_PREFIX}:version", version)


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
