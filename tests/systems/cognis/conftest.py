"""A memory over an encoder that needs no weights, and short ways to speak to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hashing import HashingEncoder
from mlmf.config.cognis import CognisSettings
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.types import Query, Session, Turn

ENCODER = HashingEncoder(48)


def said(index: int, *texts: str, speaker: str = "Anna", day: int | None = None, month: int = 5) -> Session:
    """A session of one speaker on a day of May 2023; turns are called ``S<index>:<number>``."""
    date = datetime(2023, month, day if day is not None else index + 1, 12)
    return Session(index, date, tuple(Turn(f"S{index}:{i}", speaker, text) for i, text in enumerate(texts)))


def ask(memory: CognisMemory, user: str, *questions: str, count: int = 5, **options: Any) -> list[list[str]]:
    """What each question finds, as text."""
    found = memory.search(user, [Query(question) for question in questions], count, **options)
    return [[one.memory.text for one in row] for row in found]


@pytest.fixture
def new_memory(tmp_path: Path) -> Iterator[Callable[..., CognisMemory]]:
    """Makes memories with settings of the test; they are closed at its end."""
    opened: list[CognisMemory] = []

    def make(*, extractor: Any = None, reranker: Any = None, **settings: Any) -> CognisMemory:
        memory = CognisMemory(
            ENCODER,
            encoder_name="hashing",
            settings=CognisSettings(**settings),
            extractor=extractor,
            reranker=reranker,
        )
        opened.append(memory)
        return memory

    yield make
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(new_memory: Callable[..., CognisMemory]) -> CognisMemory:
    """An empty memory in a temporary file."""
    return new_memory()


def texts(memories: Sequence[Any]) -> list[str]:
    return [memory.text for memory in memories]
