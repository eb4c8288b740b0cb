"""A small conversation, a system that records what reaches it, and the real LoCoMo where it is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import mlmf.evaluation.asking as asking_module
from mlmf.config.evaluation import EvalConfig
from mlmf.config.model import MLMFConfig
from mlmf.data.jsonl import dump_jsonl
from mlmf.data.locomo import HOW_TO_GET_LOCOMO, LOCOMO_FILE
from mlmf.data.tasks import LoadedData, load_task
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.paths import find_data
from mlmf.systems.base import MemorySystem
from mlmf.types import Answer, Conversation, Query, Question, Session, Turn


class SpySystem(MemorySystem):
    """Keeps every object it is given, in order, and answers by a table (else "a cat"); some texts make it fail."""

    name = "spy"

    def __init__(self, answers: dict[str, Answer] | None = None, fail_on: dict[str, Exception] | None = None) -> None:
        self.answers = answers or {}
        self.fail_on = fail_on or {}
        self.calls: list[str | Session | tuple[Query, ...]] = []

    def reset(self) -> None:
        self.calls.append("reset")

    def observe(self, session: Session) -> None:
        self.calls.append(session)
        self._fail(session.turns[0].text)

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        self.calls.append(tuple(queries))
        for query in queries:
            self._fail(query.text)
        return [self.answers.get(query.text, Answer("a cat", tokens_read=4)) for query in queries]

    def _fail(self, text: str) -> None:
        if text in self.fail_on:
            raise self.fail_on[text]


def make_conversation(name: str, questions: Sequence[Question]) -> Conversation:
    """Three sessions of two turns on 8, 9 and 10 May 2023 at noon."""
    sessions = tuple(
        Session(
            index,
            datetime(2023, 5, 8 + index, 12),
            tuple(Turn(f"S{index}:{turn}", "Anna", f"{name} says {index} {turn}") for turn in range(2)),
        )
        for index in range(3)
    )
    return Conversation(name, sessions, tuple(questions), ("Anna",))


@pytest.fixture
def conversation() -> Conversation:
    """Three answerable questions and a trap, with every gold field filled."""
    gold = [("SECRETGOLD0", 1, False), ("a cat", 2, False), ("SECRETGOLD2", 1, False), (None, 3, True)]
    return make_conversation(
        "anna",
        [
            Question(
                conversation_id="anna",
                index=index,
                text=f"Question {index}?",
                answer=answer,
                category=category,
                is_trap=is_trap,
                lure="SECRETLURE",
                evidence=("S1:0",),
                evidence_status="ok",
                id=f"anna#{index}",
                session=1,
            )
            for index, (answer, category, is_trap) in enumerate(gold)
        ],
    )


@pytest.fixture(scope="session")
def locomo() -> LoadedData:
    """The published LoCoMo file."""
    try:
        find_data(LOCOMO_FILE, HOW_TO_GET_LOCOMO)
    except UserError as error:
        pytest.skip(f"LoCoMo is not here: {error}")
    return load_task("locomo")


@pytest.fixture
def data_file(tmp_path: Path, conversation: Conversation) -> Path:
    """Two conversations with four questions each in the package's own format."""
    questions = [replace(q, conversation_id="ben", id=f"ben#{q.index}") for q in conversation.questions]
    path = tmp_path / "mine.jsonl"
    dump_jsonl([conversation, make_conversation("ben", questions)], path)
    return path


def config(mine: Path, tmp_path: Path, **changes: Any) -> EvalConfig:
    """Two text systems with the tiny model on ``mine``, into ``tmp_path / "out"``."""
    settings = {
        "system": ["no_memory", "recent_window"],
        "tasks": "jsonl",
        "data_file": str(mine),
        "base_model": "tiny-random",
        "max_new_tokens": 4,
        "output_dir": str(tmp_path / "out"),
    }
    return EvalConfig(**(settings | changes))


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> SpySystem:
    """Stands in for whatever system the run asks for."""
    system = SpySystem({"Question 3?": Answer("I don't know")})
    monkeypatch.setattr(asking_module, "build_system", lambda name, shared: system)
    return system


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained memory around the tiny model."""
    path = tmp_path_factory.mktemp("checkpoint") / "saved"
    MLMFModel.from_base("tiny-random", MLMFConfig(base_model="tiny-random", c_s=8, node_tokens=8)).save_pretrained(
        path
    )
    return path
