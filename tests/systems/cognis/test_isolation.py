"""Whatever users write, and in whatever order: one is never shown another's memory, nor does it change what one is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlmf.config.cognis import CognisSettings
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.types import Query
from tests.systems.cognis.conftest import ENCODER, said
from tests.systems.cognis.search_server import running

WORDS = ("cat", "dog", "violin", "garden", "Lisbon", "Porto", "I", "live", "in", "forget", "that")
USERS = ("anna", "Anna", 'a" OR "b', "")
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
steps = st.lists(st.tuples(st.sampled_from(USERS), sentences), max_size=10)


@pytest.fixture(params=["milvus", "opensearch"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CognisMemory]:
    """A memory whose vectors or documents lie in a store that its users share."""
    with ExitStack() as opened:
        if request.param == "milvus":
            pytest.importorskip("milvus_lite")
            chosen = CognisSettings(vectors=str(tmp_path / "vectors.db"))
        else:
            pytest.importorskip("opensearchpy")
            chosen = CognisSettings(documents=f"opensearch://127.0.0.1:{opened.enter_context(running()).server_port}")
        memory = CognisMemory(ENCODER, encoder_name="hashing", settings=chosen)
        opened.callback(memory.close)
        yield memory


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, question=sentences, deleted=st.sampled_from(USERS))
def test_in_a_shared_store_every_user_finds_only_what_is_theirs(
    elsewhere: CognisMemory, steps: list[tuple[str, str]], question: str, deleted: str
) -> None:
    for user in USERS:
        elsewhere.delete_user(user)
    for index, (user, text) in enumerate(steps):
        elsewhere.add(user, said(0, f"{text} number {index}", day=1 + index))
    elsewhere.delete_user(deleted)
    for user in USERS:
        own = {f"{text} number {index}" for index, (writer, text) in enumerate(steps) if writer == user != deleted}
        found = [text for text, _ in seen(elsewhere, user, f"{question} number")]
        assert set(found) <= own and bool(found) == bool(own)
        assert {fact.text for fact in elsewhere.known_on(user, datetime(2024, 1, 1))} <= own


def fresh() -> CognisMemory:
    return CognisMemory(ENCODER, encoder_name="hashing", settings=CognisSettings(shortlist=3))


def seen(memory: CognisMemory, user: str, question: str) -> list[tuple[str, float]]:
    return [(one.memory.text, one.score) for one in memory.search(user, [Query(question)], 20)[0]]


@settings(max_examples=8, deadline=None)
@given(steps=steps, question=sentences, deleted=st.sampled_from(USERS))
def test_a_user_alone_and_among_others_is_the_same(steps: list[tuple[str, str]], question: str, deleted: str) -> None:
    together = fresh()
    for index, (user, text) in enumerate(steps):
        together.add(user, said(0, f"{text} number {index}", day=1 + index))
    for user in USERS:
        alone = fresh()
        for index, (writer, text) in enumerate(steps):
            if writer == user:
                alone.add(user, said(0, f"{text} number {index}", day=1 + index))
        assert seen(together, user, question) == seen(alone, user, question)
        assert [m.text for m in together.known_on(user, datetime(2024, 1, 1))] == [
            m.text for m in alone.known_on(user, datetime(2024, 1, 1))
        ]
        alone.close()
    kept = {user: seen(together, user, question) for user in USERS if user != deleted}
    together.delete_user(deleted)
    assert seen(together, deleted, question) == []
    assert {user: seen(together, user, question) for user in kept} == kept
    together.close()
