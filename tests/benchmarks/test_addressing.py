"""The addressing benchmark: recall is the share of the evidence, for indexes, memories and parts of them alike."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.addressing import by_indexes, by_memory, figures, places, with_evidence
from benchmarks.finders import PARTS, POLICIES, pruned, ranked_by_indexes, remember, without
from mlmf import MLMFConfig, MLMFModel
from mlmf.training.feature_cache import FeatureCache
from mlmf.types import Conversation, Question, Session, Turn
from tests.systems.doubles import WordEncoder

WORDS = ("cat", "violin", "garden", "rain", "sister", "boat")
TURNS = tuple(Turn(f"D1:{i}", "Ann", f"Yesterday I saw a {word}") for i, word in enumerate(WORDS, start=1))


def question(index: int, text: str, *evidence: str, is_trap: bool = False) -> Question:
    return Question("ann", index, text, "yes", 1, is_trap=is_trap, evidence=evidence, evidence_status="ok")


CONVERSATION = Conversation(
    "ann",
    (Session(0, datetime(2023, 5, 8), TURNS[:4]), Session(1, datetime(2023, 6, 8), TURNS[4:])),
    (
        question(0, "Where was the violin?", "D1:2"),
        question(1, "A cat and a boat?", "D1:1", "D1:6"),
        question(2, "No evidence?"),
        question(3, "A trap about rain?", "D1:4", is_trap=True),
    ),
)


@pytest.fixture
def model() -> MLMFModel:
    return MLMFModel.from_base("tiny-random", MLMFConfig(base_model="tiny-random", c_s=16)).eval()


def test_only_answerable_questions_with_evidence_count() -> None:
    assert [one.index for one in with_evidence(CONVERSATION)] == [0, 1]


def test_recall_is_the_share_of_the_evidence() -> None:
    rankings = [["D1:9"] * 5 + ["D1:2"], ["D1:6"]]
    made = figures(list(zip(with_evidence(CONVERSATION), rankings, strict=True)), "locomo")
    assert (made["recall@5"], made["recall@10"], made["recall@20"]) == (0.25, 0.75, 0.75)
    assert made["multi_hop_recall@20"] == 0.75 and made["n_questions"] == 2
    assert made["recall@5_interval"] is None  # of a single conversation there is none
    assert not any(key.startswith("temporal") for key in made)


def test_indexes_rank_the_turn_with_the_word_first() -> None:
    found = ranked_by_indexes(CONVERSATION, ["violin"], WordEncoder(*WORDS))
    assert {name: lists[0][0] for name, lists in found.items()} == dict.fromkeys(("bm25", "dense", "hybrid"), "D1:2")
    assert set(by_indexes([CONVERSATION], WordEncoder(*WORDS))) == {("bm25",), ("dense",), ("hybrid",)}


def test_a_memory_is_measured_whole_without_each_part_and_under_each_capacity(
    model: MLMFModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path))
    measured = by_memory([CONVERSATION], model, 1, ablations=True, capacity=True)
    stored = dict(places(measured, "locco", "locco"))
    # all six turns fit into the first ten, so whoever returns turn ids finds every one
    assert stored["locco",]["recall@10"] == 1.0
    assert {place[2] for place in stored if place[0] == "ablations"} == {f"no_{part}" for part in PARTS}
    assert all(stored["capacity", "locco", "1", policy]["recall@10"] == 1.0 for policy in POLICIES)
    # of eight nodes a quarter is one turn with its date line
    assert stored["capacity", "locco", "0.25", "newest"]["recall@10"] == 0.25
    assert dict(places(measured, "locco", "untrained"))["untrained", "locco"] == stored["locco",]
    # another training's figures stand in a corner of their own and leave the reference's alone
    assert {place[:2] for place in dict(places(measured, "locco", "locco", "answers_only"))} == {
        ("trainings", "answers_only")
    }


def test_a_part_is_off_only_as_long_as_wanted(model: MLMFModel) -> None:
    scorer = model.memory.scorer

    def numbers() -> dict[str, float]:
        return {name: weight.item() for name, weight in scorer.state_dict().items() if not weight.dim()}

    before = numbers()
    for part, names in PARTS.items():
        with without(scorer, part):
            off = {name for name, weight in numbers().items() if weight != before[name]}
            assert off == {name for name in names if before[name] != 0}
            assert all(getattr(scorer, name).item() == 0 for name in names)
        assert numbers() == before


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("newest", ["D1:5", "D1:6"]), ("longest", ["D1:5", "D1:6"]), ("salience", None), ("random", None)],
)
def test_policies_keep_a_share_of_the_nodes(
    model: MLMFModel, tmp_path: Path, policy: str, kept: list[str] | None
) -> None:
    state = remember(CONVERSATION, model, FeatureCache(model, tmp_path))
    left = pruned(state, policy, 3 / 8, model)
    ids = [node.turn_id for node in left.nodes[0] if not node.is_session]
    assert len(left.nodes[0]) <= 3 and ids and (kept is None or ids == kept)
    assert left.embedding.shape[1] == len(left.nodes[0]) == left.salience.shape[1]
    assert model.memory.semantic is not None and model.memory.semantic.c_s == 16
