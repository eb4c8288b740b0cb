"""The store over HTTP: what it sends, and what it makes of conflicts. No real OpenSearch takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime

import pytest

from mlmf.errors import UserError
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis import opensearch
from mlmf.systems.cognis.ingest import Report
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.opensearch import OpenSearchStore
from mlmf.systems.cognis.records import new_id
from mlmf.systems.cognis.store import Changes, open_document_store
from tests.systems.cognis.conftest import ask, said, texts
from tests.systems.cognis.search_server import SearchServer, running
from tests.systems.cognis.test_sqlite import message, vectors

pytest.importorskip("opensearchpy")


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with running() as server:
        yield server


@pytest.fixture
def uri(server: SearchServer) -> str:
    return f"opensearch://127.0.0.1:{server.server_port}/test"


@pytest.fixture
def store(uri: str) -> Iterator[OpenSearchStore]:
    store = open_document_store(uri)
    assert isinstance(store, OpenSearchStore)
    yield store
    store.close()


def test_what_is_written_comes_back(store: OpenSearchStore) -> None:
    kept = store.record("anna", [message("a cat"), message("rain", None, "Ben")], vectors(2))
    assert [one.position for one in kept] == [0, 1]
    fact = replace(
        kept[0], id=new_id(), kind="fact", entities=("cat",), topic="anna|pet", version=3, replaces_id="old",
        spans=(Span(date(2023, 4, 1), date(2023, 4, 30)),), is_current=False, closed=datetime(2023, 5, 2, 1, 2, 3, 4),
    )  # fmt: skip
    assert store.commit("anna", Changes((fact,), vectors(1) + 10, extracted=(kept[0].id,)))
    assert store.pending("anna") == kept[1:]
    assert store.get("anna", [fact.id, "nothing", kept[0].id]) == [fact, kept[0]]
    assert store.facts("anna") == [fact] and store.by_topic("anna", ["anna|pet", ""]) == []
    ids, found = store.vectors("anna", [fact.id])
    assert ids == [fact.id] and found.tolist() == [[10, 11, 12]]
    assert (store.speakers("anna"), store.latest("anna")) == (("Anna", "Ben"), kept[0].said)
    written = store.written_since("anna", 0, 2)
    assert [kind for _, kind in written.memories] == ["message", "message"]
    assert store.written_since("anna", written.cursor, 2).memories == ((fact.id, "fact"),)


def test_a_whole_memory_works_over_it(uri: str, new_memory: Callable[..., CognisMemory]) -> None:
    memory = new_memory(documents=uri)
    memory.add("anna", said(0, "I live in Lisbon.", "We adopted a grey cat."))
    assert memory.add("anna", said(1, "I moved to Porto.")) == Report(updated=1)
    memory.add("ben", said(0, "A grey cat bit me in Lisbon."))
    assert ask(memory, "anna", "grey cat")[0][0] == "We adopted a grey cat."
    (home,) = [fact for fact in memory.known_on("anna", datetime(2023, 6, 1)) if fact.topic == "anna|home"]
    assert texts(memory.history("anna", home.id)) == ["I live in Lisbon.", "I moved to Porto."]
    memory.delete_user("anna")
    assert ask(memory, "anna", "grey cat") == [[]]
    assert ask(memory, "ben", "grey cat")[0] == ["A grey cat bit me in Lisbon."]


def test_every_search_names_its_user(server: SearchServer, uri: str, new_memory: Callable[..., CognisMemory]) -> None:
    memory = new_memory(documents=uri)
    memory.add("anna", said(0, "I live in Lisbon."))
    ask(memory, "anna", "Lisbon")
    memory.known_on("anna", datetime(2023, 6, 1))
    memory.delete_user("anna")
    asked = [
        body
        for _, path, body in server.requests
        if path.rpartition("/")[2] in ("_search", "_count", "_delete_by_query")
    ]
    assert len(asked) > 8
    assert all({"term": {"user": "anna"}} in body["query"]["bool"]["filter"] for body in asked)
    assert server.indexes["test-memories"] == {} and set(server.indexes["test-users"]) == {"encoder", "schema"}


def test_where_another_writer_was_faster_nothing_of_the_changes_stays(
    store: OpenSearchStore, server: SearchServer
) -> None:
    (kept,) = store.record("anna", [message("a cat")], vectors(1))
    fact = replace(kept, id=new_id(), kind="fact")
    changes = Changes((fact,), vectors(1), extracted=(kept.id,))
    search = server.answer

    def raced(method: str, path: str, body: object) -> tuple[int, object]:
        reply = search(method, path, body)
        if path.endswith("_search"):
            server.revisions["test-memories", kept.id] += 1  # somebody writes between our reading and our writing
        return reply

    server.answer = raced  # type: ignore[method-assign]
    assert not store.commit("anna", changes)
    server.answer = search  # type: ignore[method-assign]
    assert store.facts("anna") == [] and store.pending("anna") == [kept]
    assert store.commit("anna", changes)
    assert not store.commit("anna", Changes(extracted=(kept.id,)))
    assert not store.commit("anna", Changes(closed=(("nothing", None),)))


def test_encoders_cursors_and_incarnations(store: OpenSearchStore) -> None:
    store.check_encoder("minilm", 384)
    store.check_encoder("minilm", 384)
    with pytest.raises(UserError, match=r"filled with encoder 'minilm' \(384 .* not with 'other' \(768\)"):
        store.check_encoder("other", 768)
    assert store.incarnation("anna") is None and store.cursor("anna", "index") == 0
    store.set_cursor("anna", "index", 5)
    store.record("anna", [message("a cat")], vectors(1))
    first = store.incarnation("anna")
    store.set_cursor("anna", "index", 5)
    assert store.cursor("anna", "index") == 5
    store.delete_user("anna")
    store.record("anna", [message("a cat")], vectors(1))
    assert store.incarnation("anna") not in (None, first) and store.cursor("anna", "index") == 0


def test_older_indexes_are_migrated_once_and_newer_ones_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_document_store(uri).close()
    done: list[OpenSearchStore] = []
    with monkeypatch.context() as newer:
        newer.setattr(opensearch, "MIGRATIONS", (done.append,))
        for _ in range(2):
            open_document_store(uri).close()
    assert len(done) == 1
    with pytest.raises(UserError, match=r"newer version of mlmf \(schema 2, this one knows 1\)"):
        open_document_store(uri)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"documents 127\.0\.0\.1:9/cognis: the server cannot be used"):
        open_document_store("opensearch://127.0.0.1:9")
