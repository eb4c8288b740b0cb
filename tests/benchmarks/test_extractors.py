"""What the comparison of extractors counts: replies that are JSON, words that are kept, words that nobody said."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from benchmarks import extractors
from benchmarks.extractors import CountedReplies, chosen_sessions, quality
from mlmf.data.tasks import load_task
from mlmf.llm.chat import Message
from mlmf.llm.structured import StructuredOutputError, ask_for
from mlmf.types import Conversation, Question, Session, Turn
from tests.llm.doubles import SpokenFor
from tests.retrieval.tiny_encoder import save_tiny_encoder


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level = logging.getLogger("mlmf").level
    yield
    logging.getLogger("mlmf").setLevel(level)


class Number(BaseModel):
    number: int


def test_replies_are_counted_by_when_they_are_valid() -> None:
    left = ['{"number": 1}', "one", '{"number": 2}', "three", "four"]
    model = CountedReplies(SpokenFor(lambda said: left.pop(0)))
    for _ in range(2):
        ask_for(model, [Message("user", "Which?")], Number, 9)
    with pytest.raises(StructuredOutputError):
        ask_for(model, [Message("user", "Which?")], Number, 9)
    assert model.counts == {"asked": 3, "valid_at_once": 1, "valid_when_repaired": 1}


def test_words_kept_and_words_made_up() -> None:
    session = Session(
        0, datetime(2023, 5, 8), (Turn("a", "Anna", "My cat Miso moved to Oslo."), Turn("b", "Ben", "Oh"))
    )
    asked = [
        Question("c", 0, "Where?", "Oslo, Norway", evidence=("a",), evidence_status="ok"),
        Question("c", 1, "Later?", "Rome", evidence=("z",), evidence_status="ok"),  # in no session that was read
    ]
    found = quality(["Miso moved to Oslo", "Miso flies"], Conversation("c", (session,), tuple(asked)), [session])
    assert found["answer_words_kept"] == {"mean": 0.5, "n": 1}
    assert found["words_made_up"]["mean"] == pytest.approx(1 / 6)
    assert found["statements"] == 2


def test_both_systems_read_the_sessions_with_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (session,) = chosen_sessions(load_task("locco", split="test").conversations[0], 1)
    monkeypatch.setattr(
        extractors, "chosen_sessions", lambda conversation, count: [replace(session, turns=session.turns[:3])]
    )
    file, encoder = tmp_path / "out.json", save_tiny_encoder(tmp_path / "encoder")
    options = ("--model", "tiny-random", "--encoder", str(encoder), "--cogmem_tokens", "4", "--cognis_tokens", "4")
    monkeypatch.setattr(sys, "argv", ["extractors", *options, "--output", str(file)])
    assert extractors.main() == 0
    written = json.loads(file.read_text())
    assert written["turns"] == 3
    for system in ("cognis", "cogmem"):
        assert written[system]["rules"]["statements"] > 0
        assert written[system]["rules"]["words_made_up"]["mean"] < 0.1
        assert written[system]["llm"]["json"]["valid_at_once"] == 0  # no JSON has four tokens
    assert written["cogmem"]["llm"]["statements"] == written["cogmem"]["rules"]["statements"]  # the rules took over
    assert written["cognis"]["llm"]["statements"] == 0
