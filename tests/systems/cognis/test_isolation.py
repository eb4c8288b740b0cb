"""Whatever users write, and in whatever order: one is never shown another's memory, nor does it change what one is shown."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.config.cognis import CognisSettings
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.types import Query
from tests.systems.cognis.conftest import ENCODER, said

WORDS = ("cat", "dog", "violin", "garden", "Lisbon", "Porto", "I", "live", "in", "forget", "that")
USERS = ("anna", "Anna", 'a" OR "b', "")
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
steps = st.lists(st.tuples(st.sampled_from(USERS), sentences), max_size=10)


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
