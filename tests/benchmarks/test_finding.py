"""The finding benchmark: recall is the share of the evidence, for indexes and for a memory alike."""

from __future__ import annotations

from datetime import datetime

import pytest

from benchmarks.finding import measure, ranked_by_indexes, recall_at, with_evidence
from mlmf import MLMFConfig, MLMFModel
from mlmf.types import Conversation, Question, Session, Turn
from tests.systems.doubles import WordEncoder

WORDS = ("cat", "violin", "garden", "rain", "sister", "boat")
TURNS = tuple(Turn(f"D1:{i}", "Ann", f"Yesterday I saw a {word}") for i, word in enumerate(WORDS, start=1))


def question(index: int, text: str, *evidence: str, is_trap: bool = False) -> Question:
    return Question("ann", index, text, "yes", is_trap=is_trap, evidence=evidence, evidence_status="ok")


CONVERSATION = Conversation(
    "ann",
    (Session(0, datetime(2023, 5, 8), TURNS),),
    (
        question(0, "Where was the violin?", "D1:2"),
        question(1, "A cat and a boat?", "D1:1", "D1:6"),
        question(2, "No evidence?"),
        question(3, "A trap about rain?", "D1:4", is_trap=True),
    ),
)


def test_only_answerable_questions_with_evidence_count() -> None:
    assert [one.index for one in with_evidence(CONVERSATION)] == [0, 1]


def test_recall_is_the_share_of_the_evidence() -> None:
    rankings = [["D1:9"] * 5 + ["D1:2"], ["D1:6"]]
    assert recall_at(rankings, with_evidence(CONVERSATION)) == {"5": 0.25, "10": 0.75, "20": 0.75}


def test_indexes_rank_the_turn_with_the_word_first() -> None:
    found = ranked_by_indexes(CONVERSATION, ["violin"], WordEncoder(*WORDS))
    assert {name: lists[0][0] for name, lists in found.items()} == dict.fromkeys(("bm25", "dense", "hybrid"), "D1:2")


def test_a_memory_is_measured_like_an_index() -> None:
    model = MLMFModel.from_base("tiny-random", MLMFConfig(base_model="tiny-random", c_s=16, recall_nodes=20))
    measured = dict(measure([CONVERSATION], WordEncoder(*WORDS), model.eval(), 1))
    assert set(measured) == {"bm25", "dense", "hybrid", "mlmf"}
    assert {figures["n_questions"] for figures in measured.values()} == {2}
    # all six turns fit into the first ten, so whoever returns turn ids finds every one
    assert measured["mlmf"]["recall"]["10"] == pytest.approx(1.0)
