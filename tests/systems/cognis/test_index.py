"""Two widths, an index that follows its store, and users who come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.vectors import unit
from mlmf.systems.cognis.index import VectorIndex, narrow, shortlist_width
from mlmf.systems.cognis.sqlite import SQLiteStore
from tests.systems.cognis.test_sqlite import message

WIDTH = 12


def some_vectors(count: int, seed: int = 0) -> FloatArray:
    return unit(np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "store.db")
    yield store
    store.close()


def fill(store: SQLiteStore, user: str, vectors: FloatArray) -> list[str]:
    return [one.id for one in store.record(user, [message(f"text {i}") for i in range(len(vectors))], vectors)]


def test_narrow_vectors_are_the_first_numbers_at_length_one() -> None:
    vectors = np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 1.0]], np.float32)
    np.testing.assert_allclose(narrow(vectors, 2), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    assert (shortlist_width(768), shortlist_width(384), shortlist_width(2)) == (256, 128, 1)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 30), seed=st.integers(0, 9), wanted=st.integers(1, 10))
def test_a_shortlist_that_holds_all_gives_what_full_width_gives(count: int, seed: int, wanted: int) -> None:
    store = SQLiteStore(None)
    vectors, queries = some_vectors(count, seed), some_vectors(3, seed + 100)
    ids = fill(store, "anna", vectors)
    two = VectorIndex(store, None, full=WIDTH, width=4, shortlist=30)
    one = VectorIndex(store, None, full=WIDTH, width=WIDTH, shortlist=1)
    cosines = queries @ vectors.T
    for found, exact, row in zip(
        two.search("anna", "message", queries, wanted),
        one.search("anna", "message", queries, wanted),
        cosines,
        strict=True,
    ):
        assert found == exact
        assert [name for name, _ in found] == [ids[i] for i in np.argsort(-row, kind="stable")[:wanted]]
        assert [score for _, score in found] == pytest.approx(sorted(row, reverse=True)[:wanted], abs=1e-4)
    store.close()


def test_a_short_shortlist_keeps_what_is_near_in_the_first_numbers(store: SQLiteStore) -> None:
    vectors = unit(np.eye(WIDTH, dtype=np.float32)[:3] + 0.01)
    ids = fill(store, "anna", vectors)
    index = VectorIndex(store, None, full=WIDTH, width=2, shortlist=1)
    query = unit(np.array([[0.5, 0.1, 1.0, *[0.0] * (WIDTH - 3)]], np.float32))
    assert [name for name, _ in index.search("anna", "message", query, 1)[0]] == ids[
        :1
    ]  # the nearest, ids[2], is cut off


def test_an_index_sees_what_another_one_wrote_and_forgets_whom_another_one_deleted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    mine, theirs = SQLiteStore(path), SQLiteStore(path)
    index = VectorIndex(mine, None, full=WIDTH)
    vectors = some_vectors(4)
    assert index.search("anna", "message", vectors[:1], 5) == [[]]
    ids = fill(theirs, "anna", vectors[:2])
    assert {name for name, _ in index.search("anna", "message", vectors[:1], 5)[0]} == set(ids)
    ids += fill(theirs, "anna", vectors[2:])
    assert {name for name, _ in index.search("anna", "message", vectors[:1], 5)[0]} == set(ids)
    assert index.search("anna", "fact", vectors[:1], 5) == [[]]
    theirs.delete_user("anna")
    again = fill(theirs, "anna", vectors[:1])
    assert [name for name, _ in index.search("anna", "message", vectors[:1], 5)[0]] == again
    theirs.delete_user("anna")
    assert index.search("anna", "message", vectors[:1], 5) == [[]]
    assert index.count("anna") == 0
    mine.close()
    theirs.close()


def test_a_lasting_index_takes_in_only_what_is_new_and_catches_up_after_a_crash(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    store, uri = SQLiteStore(tmp_path / "store.db"), str(tmp_path / "vectors.db")
    vectors = some_vectors(3)
    ids = fill(store, "anna", vectors[:2])
    index = VectorIndex(store, uri, full=WIDTH)
    assert [name for name, _ in index.search("anna", "message", vectors[:1], 1)[0]] == ids[:1]
    noted = store.cursor("anna", f"{uri}#4")
    index.close()
    ids += fill(store, "anna", vectors[2:])
    index = VectorIndex(store, uri, full=WIDTH)
    assert index.count("anna") == 2
    index.catch_up("anna")
    assert index.count("anna") == 3
    # a process that dies after writing vectors and before noting it writes them again, under the same ids
    store.set_cursor("anna", f"{uri}#4", noted)
    index.close()
    index = VectorIndex(store, uri, full=WIDTH)
    assert {name for name, _ in index.search("anna", "message", vectors[:1], 5)[0]} == set(ids)
    assert index.count("anna") == 3
    store.delete_user("anna")
    index.delete_user("anna")
    assert index.count("anna") == 0
    index.close()
    store.close()
