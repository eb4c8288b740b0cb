"""Insights are added, merged and left out, found by meaning, kept apart by user, and put right after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.retrieval.vector_store import ExactVectorStore
from mlmf.systems.cogmem.agents import MemoryAgent
from mlmf.systems.cogmem.extract import RuleMemoryAgent
from mlmf.systems.cogmem.long_term import LongTermMemory
from mlmf.systems.cogmem.records import Insight, TurnRecord, Verdict, said_in_exchange
from mlmf.systems.cogmem.stores import SqliteStore
from tests.systems.cogmem.doubles import WORDS
from tests.systems.doubles import WordEncoder


class Verdicts(RuleMemoryAgent):
    """Keeps every turn, and does with it what it is told."""

    def __init__(self, verdicts: Sequence[Verdict] = ()) -> None:
        super().__init__(notes=9, merge_similarity=0.9)
        self.verdicts = list(verdicts)
        self.similar: list[list[str]] = []

    def distil(self, turns: Sequence[TurnRecord]) -> list[tuple[str, tuple[str, ...]]]:
        return [(turn.said[0].text, (turn.label,)) for turn in turns]

    def judge(self, text: str, similar: Sequence[tuple[Insight, float]]) -> Verdict:
        self.similar.append([insight.text for insight, _ in similar])
        verdict = self.verdicts.pop(0) if self.verdicts else Verdict(action="add", text=text)
        merged = verdict.action == "merge" and similar
        return verdict.model_copy(update={"merge_with": similar[0][0].id}) if merged else verdict


def turns(*texts: str) -> list[TurnRecord]:
    return [
        TurnRecord(key=text, parent=None, number=n, label=f"T{n}", said=said_in_exchange(text, ""))
        for n, text in enumerate(texts, start=1)
    ]


def memory(agent: MemoryAgent, store: SqliteStore | None = None, vectors: Any = None) -> LongTermMemory:
    vectors = vectors or ExactVectorStore(len(WORDS))
    return LongTermMemory(store or SqliteStore(), vectors, WordEncoder(*WORDS), agent)


def test_a_review_adds_merges_and_leaves_out() -> None:
    agent = Verdicts(
        [
            Verdict(action="add", text="the cat is old"),
            Verdict(action="exclude"),
            Verdict(action="merge", text="the cat is old and grey"),
        ]
    )
    insights = memory(agent)
    insights.review("ann", turns("the cat is old", "a cat, old", "the cat is grey"))
    (kept,) = insights.insights("ann").values()
    assert (kept.text, kept.sources) == ("the cat is old and grey", ("T3", "T1"))
    assert agent.similar == [[], ["the cat is old"], ["the cat is old"]]
    assert insights.retrieve("ann", "What about the cat?", 5) == [kept]


def test_the_nearest_come_first_and_are_searched_with_the_rewritten_opening() -> None:
    class Describes(Verdicts):
        def describe(self, asked: str) -> str:
            return {"the pet": "cat garden"}[asked]

    insights = memory(Describes())
    insights.review("ann", turns("violin", "cat garden", "cat", "rain"))
    assert [one.text for one in insights.retrieve("ann", "the pet", 2)] == ["cat garden", "cat"]


users = st.sampled_from(["ann", "ben", "ann\x00", ""])


@settings(max_examples=30, deadline=None)
@given(reviews=st.lists(st.tuples(users, st.sampled_from(WORDS)), max_size=8), asked=users, forgotten=users)
def test_no_user_finds_what_another_said(reviews: list[tuple[str, str]], asked: str, forgotten: str) -> None:
    store = SqliteStore()
    insights = memory(Verdicts(), store)
    for user, word in reviews:
        insights.review(user, turns(f"{user} has a {word}"))
    expected = {f"{user} has a {word}" for user, word in reviews if user == asked}
    assert {one.text for one in insights.retrieve(asked, " ".join(WORDS), 99)} == expected
    insights.forget(forgotten)
    store.delete_user(forgotten)
    left = expected if asked != forgotten else set()
    assert {one.text for one in insights.retrieve(asked, " ".join(WORDS), 99)} == left


def test_vectors_that_are_missing_or_strange_are_made_anew() -> None:
    store = SqliteStore()
    memory(Verdicts(), store).review("ann", turns("a cat", "a dog"))
    vectors = ExactVectorStore(len(WORDS))
    vectors.upsert("ann", ["strange"], WordEncoder(*WORDS).encode_documents(["a dog"]))
    again = memory(Verdicts(), store, vectors)
    assert again.retrieve("ann", "dog", 1)[0].text == "a dog"
    assert vectors.count("ann") == 2


def test_what_another_process_adds_merges_and_deletes_is_followed(tmp_path: Path) -> None:
    mine, theirs = (SqliteStore(tmp_path / "sessions.db") for _ in range(2))
    vectors = ExactVectorStore(len(WORDS))
    merged = Verdict(action="merge", text="a cat and a dog")
    here = memory(Verdicts(), mine, vectors)
    there = memory(Verdicts([Verdict(action="add", text="a cat"), merged]), theirs)
    assert here.retrieve("ann", "cat", 9) == []
    there.review("ann", turns("a cat"))
    assert [one.text for one in here.retrieve("ann", "cat", 9)] == ["a cat"]
    there.review("ann", turns("and a dog"))
    here.review("ann", turns("a violin"))  # without having looked at what was merged
    assert {one.text for one in here.retrieve("ann", "dog", 9)} == {"a cat and a dog", "a violin"}
    assert [one.text for one in here.retrieve("ann", "dog", 1)] == ["a cat and a dog"]
    assert {one.text for one in there.retrieve("ann", "violin", 9)} == {"a cat and a dog", "a violin"}
    theirs.delete_user("ann")
    assert here.retrieve("ann", "cat", 9) == [] and vectors.count("ann") == 0


class Interrupted(ExactVectorStore):
    """While it takes a vector in, another process writes an insight."""

    def __init__(self, other: LongTermMemory) -> None:
        super().__init__(len(WORDS))
        self.other: LongTermMemory | None = other

    def upsert(self, user: str, ids: Sequence[str], vectors: Any) -> None:
        other, self.other = self.other, None
        if other is not None:
            other.review(user, turns("a dog"))
        super().upsert(user, ids, vectors)


def test_two_processes_that_write_at_once_miss_nothing_of_each_other(tmp_path: Path) -> None:
    mine, theirs = (SqliteStore(tmp_path / "sessions.db") for _ in range(2))
    here = memory(Verdicts(), mine, Interrupted(memory(Verdicts(), theirs)))
    here.review("ann", turns("a cat"))
    assert {one.text for one in here.retrieve("ann", "cat dog", 9)} == {"a cat", "a dog"}


def test_after_a_write_that_failed_the_vectors_are_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = ExactVectorStore(len(WORDS))
    insights = memory(Verdicts(), vectors=vectors)
    insights.review("ann", turns("a cat"))

    def fail(*arguments: object) -> None:
        raise OSError("no server answers")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="no server"):
        broken.setattr(vectors, "upsert", fail)
        insights.review("ann", turns("a dog"))
    assert {one.text for one in insights.retrieve("ann", "dog", 9)} == {"a cat", "a dog"}


@pytest.mark.parametrize("step", ["words", "vectors"])
def test_a_crash_while_an_insight_is_written_is_put_right(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, vectors = SqliteStore(), ExactVectorStore(len(WORDS))
    memory(Verdicts(), store, vectors).review("ann", turns("a cat"))
    merged = Verdict(action="merge", text="a cat and a dog")
    crashing = memory(Verdicts([merged]), store, vectors)

    def crash(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if step == "vectors":
            broken.setattr(vectors, "upsert", crash)
        else:
            broken.setattr(vectors, "delete", lambda *_: ExactVectorStore.delete(vectors, *_) or crash())
        with pytest.raises(KeyboardInterrupt):
            crashing.review("ann", turns("and a dog"))
    (found,) = memory(Verdicts(), store, vectors).retrieve("ann", "cat", 9)
    assert found.text == ("a cat and a dog" if step == "vectors" else "a cat")
    assert vectors.count("ann") == 1
