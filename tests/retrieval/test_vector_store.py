"""Both vector stores give the same results, keep users apart, and the one on disk keeps what it was given."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.errors import UserError
from mlmf.retrieval.vector_store import ExactVectorStore, VectorStore, open_vector_store
from mlmf.retrieval.vectors import unit

WIDTH = 8
USERS = ("ann", 'ann" or owner != "', "")
IDS = tuple("abcdefgh")


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VectorStore]:
    pytest.importorskip("milvus_lite")
    store = open_vector_store(str(tmp_path_factory.mktemp("milvus") / "vectors.db"), "memories", WIDTH)
    yield store
    store.close()


@pytest.fixture(params=["exact", "milvus"])
def store(request: pytest.FixtureRequest) -> VectorStore:
    """An empty store of either kind."""
    if request.param == "exact":
        return ExactVectorStore(WIDTH)
    store: VectorStore = request.getfixturevalue("milvus")
    for user in USERS:
        store.delete(user)
    return store


def vectors(*seeds: int) -> np.ndarray:
    """Unit vectors, the same for the same seeds; seeds that differ by 100 give equal ones."""
    return unit(np.stack([np.random.default_rng(seed % 100).normal(size=WIDTH) for seed in seeds]))


writes = st.tuples(st.sampled_from(USERS), st.sampled_from(IDS), st.integers(0, 199))
removals = st.tuples(st.sampled_from(USERS), st.none() | st.sampled_from(IDS))
Step = tuple[str, str, int] | tuple[str, str | None]


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(writes | removals, max_size=12), asked=st.integers(0, 99), count=st.integers(1, 4))
def test_both_stores_do_what_a_dictionary_of_each_user_does(
    milvus: VectorStore, steps: list[Step], asked: int, count: int
) -> None:
    exact = ExactVectorStore(WIDTH)
    held: dict[str, dict[str, int]] = {user: {} for user in USERS}
    for user in USERS:
        milvus.delete(user)
    for step in steps:
        for store in (exact, milvus):
            if len(step) == 3:
                store.upsert(step[0], [step[1]], vectors(step[2]))
            else:
                store.delete(step[0], step[1] and [step[1]])
        if len(step) == 3:
            held[step[0]][step[1]] = step[2]
        elif step[1] is None:
            held[step[0]].clear()
        else:
            held[step[0]].pop(step[1], None)
    for user, records in held.items():
        cosines = {name: float(vectors(seed)[0] @ vectors(asked)[0]) for name, seed in records.items()}
        expected = sorted(cosines, key=lambda name: (-round(cosines[name], 5), name))[:count]
        for store in (exact, milvus):
            (found,) = store.search(user, vectors(asked), count)
            assert [name for name, _ in found] == expected
            assert [score for _, score in found] == pytest.approx([cosines[name] for name in expected], abs=2e-5)
            assert store.count(user) == len(records)


def test_equal_vectors_come_in_the_order_of_their_ids_wherever_the_cut_is(store: VectorStore) -> None:
    names = [f"{number:02}" for number in range(40)]
    store.upsert("ann", names[::-1], vectors(*[7] * 40))
    store.upsert("ann", ["best"], vectors(3))
    for count in (1, 2, 5, 40):
        (found,) = store.search("ann", vectors(3), count)
        assert [name for name, _ in found] == ["best", *names][:count]


def test_several_queries_at_once_and_none_at_all(store: VectorStore) -> None:
    store.upsert("ann", list("abc"), vectors(1, 2, 3))
    assert [found[0][0] for found in store.search("ann", vectors(3, 1), 2)] == ["c", "a"]
    assert store.search("ann", np.zeros((0, WIDTH), np.float32), 2) == []
    assert store.search("nobody", vectors(1), 2) == [[]]
    store.upsert("ann", [], np.zeros((0, WIDTH), np.float32))
    store.delete("ann", [])
    assert store.count("ann") == 3


def test_users_who_write_at_once_read_their_own(store: VectorStore) -> None:
    def use(user: str) -> list[str]:
        for number in range(8):
            store.upsert(user, [f"{user}{number}"], vectors(number))
            assert store.search(user, vectors(number), 1)[0][0][0] == f"{user}{number}"
        return [name for name, _ in store.search(user, vectors(0), 99)[0]]

    with ThreadPoolExecutor(3) as pool:
        for user, found in zip(USERS, pool.map(use, USERS), strict=True):
            assert sorted(found) == [f"{user}{number}" for number in range(8)]


def test_what_was_written_outlives_the_process_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    code = """
        import os, signal, sys
        import numpy as np
        from mlmf.retrieval.vector_store import open_vector_store
        store = open_vector_store(sys.argv[1], "memories", 4)
        store.upsert("ann", ["a", "b"], np.eye(4, dtype=np.float32)[:2])
        store.delete("ann", ["b"])
        for number in range(100_000):
            store.upsert("ben", [f"{number}-{row}" for row in range(20)], np.ones((20, 4), np.float32) / 2)
            print(number, flush=True)
    """
    uri = str(tmp_path / "new" / "vectors.db")
    command = [sys.executable, "-c", textwrap.dedent(code), uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed = [int(writer.stdout.readline()) for _ in range(15)][-1]
        os.kill(writer.pid, signal.SIGKILL)  # somewhere within a later write
        confirmed = max([confirmed, *map(int, writer.stdout.read().split())])
    store = open_vector_store(uri, "memories", 4)
    assert store.search("ann", np.eye(4, dtype=np.float32)[:1], 9) == [[("a", 1.0)]]
    (found,) = store.search("ben", np.ones((1, 4), np.float32) / 2, 9_999)
    assert {f"{number}-{row}" for number in range(confirmed + 1) for row in range(20)} <= {name for name, _ in found}
    store.close()
    with pytest.raises(UserError, match=r"collection memories holds vectors of 4 numbers, the encoder gives 5"):
        open_vector_store(uri, "memories", 5)


def test_the_log_of_a_deleted_user_is_emptied(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    store = open_vector_store(str(tmp_path / "vectors.db"), "memories", WIDTH)
    store.upsert("ann", ["kept"], vectors(1))
    store.upsert("ben", [f"zyzzyva{number}" for number in range(20)], vectors(*range(20)))

    def everything() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

    assert b"zyzzyva" in everything()
    store.delete("ben")
    assert b"zyzzyva" not in everything()
    assert store.search("ann", vectors(1), 9)[0][0][0] == "kept"
    store.close()


def test_a_store_that_cannot_be_opened_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    (tmp_path / "vectors.db").write_text("not a store")
    with pytest.raises(UserError, match=r"vector store .*vectors\.db: it cannot be opened") as caught:
        open_vector_store(str(tmp_path / "vectors.db"), "memories", 4)
    assert "\n" not in str(caught.value)


def test_growing_keeps_every_row() -> None:
    store = ExactVectorStore(WIDTH)
    names = [f"{a}{b}" for a, b in itertools.product("xyz", range(20))]
    store.upsert("ann", names, vectors(*range(60)))
    for number, name in enumerate(names):
        assert store.search("ann", vectors(number), 1)[0][0][0] == name
