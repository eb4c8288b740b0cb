"""Every store changes one user's records whole or not at all, under threads and processes, and keeps users apart."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlmf.errors import UserError
from mlmf.systems.cogmem.stores import KINDS, Kind, Records, SessionStore, open_session_store

USERS = ("ann", "ann:", "", "*")


def add_one(store: SessionStore, user: str) -> None:
    def increase(records: Records) -> None:
        records.set("session", "count", str(int(records.get("session", "count") or 0) + 1))

    store.change(user, increase)


def read(store: SessionStore, user: str) -> dict[Kind, dict[str, str]]:
    return store.change(user, lambda records: {kind: found for kind in KINDS if (found := records.all(kind))})


def test_a_change_sees_itself_and_others_see_it_when_it_is_done(store: SessionStore) -> None:
    def change(records: Records) -> None:
        records.set("turn", "a", "1")
        records.set("turn", "b", "2")
        records.delete("turn", "a")
        records.delete("turn", "never there")
        assert records.get("turn", "a") is None and records.get("turn", "b") == "2"
        assert records.all("turn") == {"b": "2"}

    store.change("ann", change)
    assert read(store, "ann") == {"turn": {"b": "2"}}
    assert store.users() == ["ann"]


def test_a_change_that_raises_changes_nothing(store: SessionStore) -> None:
    add_one(store, "ann")

    def change(records: Records) -> None:
        records.set("session", "count", "9")
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        store.change("ann", change)
    assert read(store, "ann") == {"session": {"count": "1"}}
    add_one(store, "ann")
    assert read(store, "ann") == {"session": {"count": "2"}}


steps = st.tuples(
    st.sampled_from(USERS), st.sampled_from(KINDS), st.sampled_from("abc"), st.none() | st.sampled_from("xyz")
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(done=st.lists(steps, max_size=12), deleted=st.sampled_from(USERS))
def test_users_are_kept_apart_and_deleted_completely(
    store: SessionStore, done: list[tuple[str, Kind, str, str | None]], deleted: str
) -> None:
    for user in USERS:
        store.delete_user(user)
    held: dict[str, dict[Kind, dict[str, str]]] = {user: {} for user in USERS}
    for user, kind, name, value in done:
        if value is None:
            store.change(user, lambda records, k=kind, n=name: records.delete(k, n))  # type: ignore[misc]
            held[user].get(kind, {}).pop(name, None)
        else:
            store.change(user, lambda records, k=kind, n=name, v=value: records.set(k, n, v))  # type: ignore[misc]
            held[user].setdefault(kind, {})[name] = value
    store.delete_user(deleted)
    held[deleted] = {}
    for user in USERS:
        assert read(store, user) == {kind: names for kind, names in held[user].items() if names}
    assert deleted not in store.users()


def test_changes_made_at_once_by_threads_are_all_there(store: SessionStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: add_one(store, USERS[number % 2]), range(80)))
    assert [read(store, user)["session"]["count"] for user in USERS[:2]] == ["40", "40"]


def add_many(uri: str, times: int) -> None:
    store = open_session_store(uri)
    for _ in range(times):
        add_one(store, "ann")
    store.close()


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_changes_made_at_once_by_processes_are_all_there(kind: str, new_uri: Callable[[str], str | None]) -> None:
    uri = new_uri(kind)
    assert uri is not None
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=add_many, args=(uri, 25)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    store = open_session_store(uri)
    assert read(store, "ann") == {"session": {"count": "75"}}
    store.close()


def test_what_cannot_be_opened_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, by far" * 99)
    with pytest.raises(UserError, match=r"session store .*text: it cannot be opened: file is not a database"):
        open_session_store(str(tmp_path / "text"))
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(UserError, match=r"other\.db: an SQLite file, but no store of CogMem"):
        open_session_store(str(tmp_path / "other.db"))
    with pytest.raises(UserError, match=r"session store nowhere\.sock: no Redis server answers") as caught:
        open_session_store("unix://me:secret@nowhere.sock")
    assert "secret" not in str(caught.value)


def test_a_deleted_user_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    def everything() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.iterdir())

    store = open_session_store(str(tmp_path / "sessions.db"))
    store.change("secretuser", lambda records: [records.set("turn", f"t{n}", f"zyzzyva {n}") for n in range(300)])
    add_one(store, "ann")
    assert b"zyzzyva" in everything()
    store.delete_user("secretuser")
    assert not any(word in everything() for word in (b"zyzzyva", b"secretuser"))
    assert store.users() == ["ann"]
    store.close()


def upper(records: Records) -> None:
    for name, value in records.all("turn").items():
        records.set("turn", name, value.upper())


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_older_records_are_migrated_and_newer_ones_refused(
    kind: str, new_uri: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = new_uri(kind)
    old = open_session_store(uri)
    for user in ("ann", "ben"):
        old.change(user, lambda records: records.set("turn", "a", "cat"))
    old.close()
    done: list[str] = []

    def interrupted(records: Records) -> None:
        upper(records)
        done.append("")
        if len(done) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as newer:
        for module in ("stores", "redis_store"):
            newer.setattr(f"mlmf.systems.cogmem.{module}.MIGRATIONS", (interrupted,))
        with pytest.raises(KeyboardInterrupt):
            open_session_store(uri)
        store = open_session_store(uri)  # goes over every user again
        assert len(done) == 4
        assert [read(store, user) for user in ("ann", "ben")] == [{"turn": {"a": "CAT"}}] * 2
        store.close()
        open_session_store(uri).close()
        assert len(done) == 4
    with pytest.raises(UserError, match=r"newer version of mlmf \(schema 2, this one knows 1\)"):
        open_session_store(uri)


# changes of two records that belong together, until somebody ends it
WRITER = """
import sys
from mlmf.systems.cogmem.stores import open_session_store
store = open_session_store(sys.argv[1])
def change(records):
    for kind in ("turn", "session"):
        records.set(kind, "count", str(number) + " word" * 3000)
for number in range(100_000):
    store.change("ann", change)
    print(number, flush=True)
"""


@pytest.mark.parametrize("kind", ["file", "redis"])
@pytest.mark.parametrize("later", [0.0007, 0.0031])
def test_a_process_that_is_killed_in_a_write_leaves_whole_changes(
    kind: str, later: float, new_uri: Callable[[str], str | None]
) -> None:
    uri = new_uri(kind)
    assert uri is not None
    command = [sys.executable, "-c", WRITER, uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        confirmed = [int(process.stdout.readline()) for _ in range(20)][-1]
        time.sleep(later)  # somewhere within a later write
        os.kill(process.pid, signal.SIGKILL)
        confirmed = max([confirmed, *map(int, process.stdout.read().split())])
    store = open_session_store(uri)
    found = read(store, "ann")
    assert found["turn"] == found["session"]
    assert int(found["turn"]["count"].split()[0]) >= confirmed
    add_one(store, "ben")
    assert store.users() == ["ann", "ben"]
    store.close()
