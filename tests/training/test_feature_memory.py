from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlmf.model import MLMFModel
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.types import Conversation, Session


@pytest.fixture
def sessions(conversations: Sequence[Conversation]) -> list[Session]:
    return list(conversations[0].sessions)


class Counting(FeatureCache):
    """Says which sessions were loaded from the disk."""

    def __init__(self, model: MLMFModel, root: Path) -> None:
        super().__init__(model, root)
        self.loaded: list[Session] = []

    def load(self, session: Session):  # type: ignore[no-untyped-def]
        self.loaded.append(session)
        return super().load(session)


def test_a_session_is_loaded_once(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    cache = Counting(make_model(), tmp_path)
    memory = FeatureMemory(cache)
    first = [memory.load(session) for session in sessions]
    assert all(memory.load(session) is one for session, one in zip(sessions, first, strict=True))
    assert cache.loaded == sessions


def test_what_was_used_longest_ago_goes_first_and_the_limit_holds(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    cache = Counting(make_model(), tmp_path)
    a, b, c = sessions[:3]
    sizes = []
    for session in (a, b, c):
        alone = FeatureMemory(cache)
        alone.load(session)
        sizes.append(alone.held_bytes)
    cache.loaded.clear()
    memory = FeatureMemory(cache, limit=sum(sizes) - 1)
    for session in (a, b, a, c, a):
        memory.load(session)
    assert cache.loaded == [a, b, c] and memory.held_bytes == sizes[0] + sizes[2]
    memory.load(b)
    assert cache.loaded == [a, b, c, b]


def test_a_session_larger_than_the_limit_is_loaded_each_time(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    cache = Counting(make_model(), tmp_path)
    memory = FeatureMemory(cache, limit=1)
    assert memory.load(sessions[0]).n_tokens == memory.load(sessions[0]).n_tokens > 0
    assert cache.loaded == [sessions[0]] * 2 and memory.held_bytes == 0
