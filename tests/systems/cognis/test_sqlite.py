"""The file: what goes in comes out, a user leaves no trace, and files of other versions are handled."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pytest

from mlmf.errors import UserError
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis import schema
from mlmf.systems.cognis.records import Memory, new_id
from mlmf.systems.cognis.sqlite import SQLiteStore
from mlmf.systems.cognis.store import Changes


def message(text: str, said: datetime | None = datetime(2023, 5, 1, 12), speaker: str = "Anna") -> Memory:
    name = new_id()
    return Memory(name, "message", speaker, text, said, 0, 0, ("S0:0",), name)


def vectors(count: int) -> FloatArray:
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "store.db")
    yield store
    store.close()


def test_what_is_written_comes_back(store: SQLiteStore) -> None:
    kept = store.record("anna", [message("a cat"), message("Zürich, it's 'quoted'", None)], vectors(2))
    assert [one.position for one in kept] == [0, 1]
    assert store.pending("anna") == kept
    fact = replace(
        kept[0], id=new_id(), kind="fact", entities=("cat", "Zürich"), topic="anna|pet", version=3, replaces_id="old",
        spans=(Span(date(2023, 4, 1), date(2023, 4, 30)),), turn_ids=("S0:0", "S0:1"), chain="first",
        is_current=False, closed=datetime(2023, 5, 2, 1, 2, 3, 4),
    )  # fmt: skip
    other = replace(fact, id=new_id(), is_current=True, closed=None)
    extracted = tuple(one.id for one in kept)
    assert store.commit("anna", Changes((fact, other), vectors(2) + 10, extracted=extracted))
    assert store.pending("anna") == []
    assert store.get("anna", [other.id, "nothing", fact.id, kept[1].id]) == [other, fact, kept[1]]
    assert store.facts("anna") == store.chains("anna", ["first"]) == [fact, other]
    assert store.by_topic("anna", ["anna|pet", ""]) == [other]
    ids, found = store.vectors("anna", [fact.id])
    assert ids == [fact.id] and found.tolist() == [[10, 11, 12]]
    written = store.written_since("anna", 0, 3)
    assert [kind for _, kind in written.memories] == ["message", "message", "fact"]
    rest = store.written_since("anna", written.cursor, 3)
    assert rest.memories == ((other.id, "fact"),) and rest.vectors.tolist() == [[13, 14, 15]]
    assert store.written_since("anna", rest.cursor, 3).cursor == rest.cursor


def test_who_spoke_and_when_last(store: SQLiteStore) -> None:
    assert store.speakers("anna") == () and store.latest("anna") is None
    said = [
        message("x", datetime(2023, 5, 3), "Ben"),
        message("y", None, "Ann"),
        message("z", datetime(2022, 1, 1), "Ben"),
    ]
    store.record("anna", said, vectors(3))
    store.record("other", [message("x", datetime(2030, 1, 1), "Zoe")], vectors(1))
    assert store.speakers("anna") == ("Ann", "Ben")
    assert store.latest("anna") == datetime(2023, 5, 3)


def test_words_are_stemmed_ranked_by_bm25_and_quotes_are_words(store: SQLiteStore) -> None:
    said = ["She runs and runs and runs", "One run, and a long day with many other things to do", "rain"]
    ids = [one.id for one in store.record("anna", [message(text) for text in said], vectors(3))]
    assert store.search_words("anna", ["running"], 5) == ids[:2]
    assert store.search_words("anna", ["rain", "day"], 1) == ids[2:]
    assert store.search_words("anna", ["xylophone"], 5) == store.search_words("anna", [], 5) == []
    assert store.search_words("anna", ['x" OR "rain', "NEAR(", "*"], 5) == []
    assert store.search_words("nobody", ["rain"], 5) == []


def test_another_users_texts_change_no_ranking(store: SQLiteStore) -> None:
    mine = [message("a cat and a dog"), message("a dog"), message("a cat, a cat")]
    store.record("anna", mine, vectors(3))
    before = store.search_words("anna", ["cat", "dog"], 5)
    store.record("other", [message("a dog") for _ in range(50)], vectors(50))
    assert store.search_words("anna", ["cat", "dog"], 5) == before


def test_a_deleted_user_leaves_no_trace_and_comes_again_as_another(store: SQLiteStore) -> None:
    store.record("secretuser", [message(f"zyzzyva{i} and more") for i in range(300)], vectors(300))
    store.record("anna", [message("a cat")], vectors(1))
    store.set_cursor("secretuser", "index", 7)
    first = store.incarnation("secretuser")
    assert first is not None and b"zyzzyva17" in everything(store.path)
    store.delete_user("secretuser")
    assert not any(word in everything(store.path) for word in (b"zyzzyva", b"secretuser"))
    connection = sqlite3.connect(store.path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert [name for name in tables if name.startswith("words_")] == [name for name in tables if "words_2" in name]
    for table in ("users", "memories", "vectors"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM cursors").fetchone() == (0,)
    connection.close()
    assert store.incarnation("secretuser") is None and store.written_since("secretuser", 0, 5).memories == ()
    store.delete_user("secretuser")
    store.record("secretuser", [message("again")], vectors(1))
    assert store.incarnation("secretuser") not in (None, first)
    assert store.cursor("secretuser", "index") == 0


def everything(path: Path) -> bytes:
    """The file, its log and its index of the log."""
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_a_file_is_bound_to_its_encoder(store: SQLiteStore) -> None:
    store.check_encoder("minilm", 384)
    store.check_encoder("minilm", 384)
    with pytest.raises(UserError, match=r"filled with encoder 'minilm' \(384 .* not with 'other' \(768\)"):
        store.check_encoder("other", 768)


def test_an_older_file_is_migrated_and_a_newer_one_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    old = SQLiteStore(path)
    (kept,) = old.record("anna", [message("a cat")], vectors(1))
    old.close()
    step = (
        "ALTER TABLE memories ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",
        "CREATE INDEX moods ON memories (mood)",
    )
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    newer = SQLiteStore(path)
    assert newer.get("anna", [kept.id]) == [kept]
    newer.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("SELECT mood FROM memories").fetchone() == ("calm",)
    connection.close()
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"newer version of mlmf \(schema 2, this one knows 1\)"):
        SQLiteStore(path)


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    SQLiteStore(path).close()
    step = ("ALTER TABLE memories ADD COLUMN mood TEXT", "ALTER TABLE nowhere ADD COLUMN mood TEXT")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    with pytest.raises(UserError, match="no such table: nowhere"):
        SQLiteStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert "mood" not in [row[1] for row in connection.execute("PRAGMA table_info (memories)")]
    connection.close()


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be read as one" * 20)
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(UserError, match=r"text\.db: not an SQLite file"):
        SQLiteStore(tmp_path / "text.db")
    with pytest.raises(UserError, match=r"other\.db: an SQLite file, but no store of Cognis"):
        SQLiteStore(tmp_path / "other.db")
    with pytest.raises(UserError, match=r"text\.db is not a folder"):
        SQLiteStore(tmp_path / "text.db" / "store.db")


def test_a_temporary_store_is_removed() -> None:
    store = SQLiteStore(None)
    store.record("anna", [message("a cat")], vectors(1))
    assert store.path.is_file()
    store.close()
    assert not store.path.parent.exists()
