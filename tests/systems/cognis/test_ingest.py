"""Facts meet what is known: version chains, time travel, and writers that get in each other's way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mlmf.errors import UserError
from mlmf.llm.chat import ChatModel, Message, Reply
from mlmf.systems.cognis.extract import RuleExtractor
from mlmf.systems.cognis.extract_llm import LLMExtractor
from mlmf.systems.cognis.ingest import Report
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.store import open_document_store
from tests.systems.cognis.conftest import ask, said, texts

MOVES = [
    said(0, "I live in Lisbon.", "My dog is called Rex, a good boy."),
    said(1, "The weather was really stormy over here."),
    said(2, "I moved to Porto."),
    said(3, "I live in Faro now.", "I live in Braga now."),
]


@pytest.fixture
def moved(memory: CognisMemory) -> CognisMemory:
    for session in MOVES:
        memory.add("anna", session)
    return memory


def test_a_fact_that_changes_gets_versions(moved: CognisMemory) -> None:
    found = moved.search("anna", [moved_query("Where did I live?")], 5)[0]
    newest = next(one.memory for one in found if one.memory.topic == "anna|home")
    assert (newest.text, newest.version, newest.is_current) == ("I live in Braga now.", 4, True)
    history = moved.history("anna", newest.id)
    assert texts(history) == ["I live in Lisbon.", "I moved to Porto.", "I live in Faro now.", "I live in Braga now."]
    assert [one.version for one in history] == [1, 2, 3, 4]
    assert [one.replaces_id for one in history] == [None, *(one.id for one in history[:-1])]
    assert [one.is_current for one in history] == [False, False, False, True]
    assert [one.closed and one.closed.day for one in history] == [3, 4, 4, None]
    assert {one.chain for one in history} == {history[0].id}


def moved_query(text: str) -> Any:
    from mlmf.types import Query

    return Query(text)


@pytest.mark.parametrize(
    ("day", "home"), [(1, "I live in Lisbon."), (2, "I live in Lisbon."), (3, "I moved to Porto."), (9, "I live in Braga now.")]
)  # fmt: skip
def test_what_was_known_on_a_day(moved: CognisMemory, day: int, home: str) -> None:
    moment = datetime(2023, 5, day, 23)
    assert [one.text for one in moved.known_on("anna", moment) if one.topic == "anna|home"] == [home]
    (found,) = ask(moved, "anna", "Where do I live, Lisbon or Porto or Faro or Braga?", count=20, as_of=moment)
    assert home in found
    assert not set(found) & ({text for _, text in HOMES} - {home} - {text for d, text in HOMES if d <= day})
    assert moved.known_on("anna", datetime(2023, 4, 30)) == []
    assert ask(moved, "anna", "Where do I live?", as_of=datetime(2023, 4, 30)) == [[]]


HOMES = [(1, "I live in Lisbon."), (3, "I moved to Porto."), (4, "I live in Faro now."), (4, "I live in Braga now.")]


def test_each_session_reports_what_became_of_its_facts(memory: CognisMemory) -> None:
    assert memory.add("anna", said(0, "I live in Lisbon.", "We adopted a grey cat.")) == Report(added=2)
    assert memory.add("anna", said(1, "We adopted a grey cat!", "I moved to Porto.")) == Report(updated=1, unchanged=1)
    assert memory.add("anna", said(2, "Please forget what I said about the grey cat.")) == Report(deleted=1)
    assert texts(memory.known_on("anna", datetime(2023, 6, 1))) == ["I moved to Porto."]
    assert texts(memory.known_on("anna", datetime(2023, 5, 2, 23))) == ["We adopted a grey cat.", "I moved to Porto."]


def test_a_message_is_found_before_its_facts_are_taken(memory: CognisMemory) -> None:
    memory.record("anna", said(0, "We adopted a grey cat."))
    assert memory.known_on("anna", datetime(2024, 1, 1)) == []
    (found,) = memory.search("anna", [moved_query("grey cat")], 5)
    assert [(one.memory.kind, one.memory.text) for one in found] == [("message", "We adopted a grey cat.")]
    assert memory.extract("anna") == Report(added=1)
    assert memory.extract("anna") == Report()


def test_history_of_an_unknown_memory(memory: CognisMemory) -> None:
    with pytest.raises(UserError, match="user 'anna' has no memory 'there'"):
        memory.history("anna", "there")


def test_when_another_writer_was_faster_the_messages_are_not_read_twice(
    new_memory: Callable[..., CognisMemory], tmp_path: Path
) -> None:
    path = str(tmp_path / "store.db")

    class Slow(RuleExtractor):
        """While this one finds its facts, another memory on the same file takes them."""

        def extract(self, messages: Any, known: Any) -> Any:
            found = super().extract(messages, known)
            other.extract("anna")
            return found

    mine, other = new_memory(documents=path, extractor=Slow()), new_memory(documents=path)
    mine.record("anna", said(0, "We adopted a grey cat."))
    assert mine.extract("anna") == Report()
    assert texts(mine.known_on("anna", datetime(2024, 1, 1))) == ["We adopted a grey cat."]


def test_changes_that_rest_on_a_closed_fact_are_refused(
    tmp_path: Path, new_memory: Callable[..., CognisMemory]
) -> None:
    from mlmf.systems.cognis.store import Changes

    path = str(tmp_path / "store.db")
    memory = new_memory(documents=path)
    memory.add("anna", said(0, "I live in Lisbon."))
    store = open_document_store(path)
    (home,) = store.facts("anna")
    assert store.commit("anna", Changes(closed=((home.id, None),)))
    before = store.facts("anna")
    assert not store.commit("anna", Changes(closed=((home.id, datetime(2023, 5, 2)),)))
    assert not store.commit("anna", Changes(extracted=("nothing",)))
    assert store.facts("anna") == before
    store.close()


class ScriptedModel(ChatModel):
    """Gives prepared replies in turn and keeps what it was asked."""

    name = "scripted"

    def __init__(self, *replies: str, window: int = 4096) -> None:
        self.replies, self.window = list(replies), window
        self.asked: list[str] = []

    @property
    def context_window(self) -> int:
        return self.window

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def chat(
        self, conversations: Sequence[Sequence[Message]], max_new_tokens: int, *, schema: type[BaseModel] | None = None
    ) -> list[Reply]:
        self.asked += [conversation[-1].content for conversation in conversations]
        return [Reply(self.replies.pop(0), 1, 1) for _ in conversations]


def test_a_language_model_sees_what_is_known_and_decides(new_memory: Callable[..., CognisMemory]) -> None:
    model = ScriptedModel(
        '{"facts": [{"text": "Anna lives in Lisbon.", "turns": [1, 2]}]}',
        '{"facts": [{"text": "Anna lives in Porto.", "turns": [1]}]}',
        '{"action": "UPDATE", "number": 1}',
    )
    memory = new_memory(extractor=LLMExtractor(model, least=0.0))
    assert memory.add("anna", said(0, "I live in Lisbon.", "Since 2020!")) == Report(added=1)
    assert memory.add("anna", said(1, "I moved to Porto.")) == Report(updated=1)
    assert (
        "Anna: Anna lives in Lisbon." in model.asked[1] and "1. [2 May 2023] Anna: I moved to Porto." in model.asked[1]
    )
    assert "1. [1 May 2023] Anna: Anna lives in Lisbon." in model.asked[2]
    first, second = memory.history("anna", memory.known_on("anna", datetime(2024, 1, 1))[0].id)
    assert (first.turn_ids, first.is_current, second.replaces_id) == (("S0:0", "S0:1"), False, first.id)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (["no json", "still none"], Report(failed=1)),
        (['{"facts": [{"text": "Anna lives in Porto.", "turns": [7]}]}'], Report(failed=1)),
        (['{"facts": [{"text": "...", "turns": [1]}]}'], Report(failed=1)),
        (
            ['{"facts": [{"text": "Anna lives in Porto.", "turns": [1]}]}', '{"action": "DELETE", "number": 9}'],
            Report(failed=1),
        ),
        (["nonsense", '{"facts": [{"text": "Anna lives in Porto.", "turns": [1]}]}', '{"action": "NONE"}'], Report(unchanged=1)),
    ],
    ids=["no JSON", "no such turn", "no words", "no such fact", "repaired"],
)  # fmt: skip
def test_an_answer_that_is_not_valid_is_counted_and_the_message_stays(
    replies: list[str], expected: Report, new_memory: Callable[..., CognisMemory]
) -> None:
    first = '{"facts": [{"text": "Anna lives in Lisbon.", "turns": [1]}]}'
    memory = new_memory(extractor=LLMExtractor(ScriptedModel(first, *replies), least=-1.0))
    memory.add("anna", said(0, "I live in Lisbon."))
    assert memory.add("anna", said(1, "I moved to Porto.")) == expected
    assert "I moved to Porto." in ask(memory, "anna", "moved to Porto")[0]
    assert memory.extract("anna") == Report()


def test_a_session_longer_than_the_window_is_read_in_parts(new_memory: Callable[..., CognisMemory]) -> None:
    model = ScriptedModel(*['{"facts": []}'] * 3, window=480)
    memory = new_memory(extractor=LLMExtractor(model, max_new_tokens=60))
    memory.add("anna", said(0, *["word " * 100] * 3))
    assert len(model.asked) == 3
    assert all("1. [1 May 2023]" in asked and "2. [1 May 2023]" not in asked for asked in model.asked)


def test_a_part_that_fails_costs_no_fact_of_another(new_memory: Callable[..., CognisMemory]) -> None:
    facts = [{"text": "Anna lives in Lisbon.", "turns": [1]}, {"text": "Ben is here.", "turns": [2]}]
    model = ScriptedModel("no json", "still none", json.dumps({"facts": facts}), window=480)
    memory = new_memory(extractor=LLMExtractor(model, max_new_tokens=60, least=1.0))
    report = memory.add("anna", said(0, "word " * 100, "I live in Lisbon. " + "word " * 100))
    assert report == Report(added=1, failed=2)
    assert texts(memory.known_on("anna", datetime(2024, 1, 1))) == ["Anna lives in Lisbon."]


def test_a_message_too_long_for_the_model_stays_a_message_and_holds_up_nothing(
    new_memory: Callable[..., CognisMemory],
) -> None:
    model = ScriptedModel('{"facts": [{"text": "Anna lives in Lisbon.", "turns": [1]}]}', window=480)
    memory = new_memory(extractor=LLMExtractor(model, max_new_tokens=60))
    assert memory.add("anna", said(0, "violin " * 500, "I live in Lisbon.")) == Report(added=1, failed=1)
    assert memory.extract("anna") == Report()
    assert ask(memory, "anna", "violin")[0][0].startswith("violin violin")
