"""Means and denominators over hand-made answers whose figures can be worked out on paper."""

from __future__ import annotations

import pytest

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.consistency import LexicalJudge
from mlmf.evaluation.plan import ask_once
from mlmf.evaluation.runner import blank_sample
from mlmf.evaluation.scored import CONTROL_ANSWER, always_abstain, score_samples
from mlmf.evaluation.scores import aggregate
from tests.evaluation.answers import answer

LOCCO = [
    answer(0, "Gold"),
    answer(1, "gold or silver tin"),  # 0.4
    answer(2, "I don't know", category=2),
    answer(3, "I don't know", category=2, answer=None, is_trap=True, lure="tin"),
    answer(4, "A tin one.", category=2, answer=None, is_trap=True, lure="tin"),
    answer(5, "", category=2, answer=None, is_trap=True),
    answer(6, None),
]


def test_means_leave_failures_out_and_zero_filled_ones_do_not() -> None:
    scores = aggregate("locco", LOCCO, seed=0)
    assert scores["metric"] == "f1"
    assert scores["answerable_f1"]["mean"] == pytest.approx(1.4 / 3)
    assert scores["answerable_f1"]["n"] == 3
    assert scores["answerable_f1"]["zero_filled"] == pytest.approx(1.4 / 4)
    assert scores["overall_f1"] == {"mean": pytest.approx(2.4 / 6), "n": 6, "zero_filled": pytest.approx(2.4 / 7)}
    assert scores["answerable"]["em"] == {"mean": pytest.approx(1 / 3), "n": 3}
    assert scores["answerable"]["success"] == {"mean": pytest.approx(1 / 3), "n": 3}
    # the second answer contains the gold one
    assert scores["answerable"]["consistency"] == {"mean": pytest.approx(2 / 3), "n": 3}
    assert scores["over_refusal"] == {"mean": pytest.approx(1 / 3), "n": 3}


def test_traps_are_apart_and_silence_is_neither_abstention_nor_claim() -> None:
    scores = aggregate("locco", LOCCO, seed=0)
    assert scores["abstention_on_traps"] == {"mean": pytest.approx(1 / 3), "n": 3}
    assert scores["false_memory"] == {
        "mean": pytest.approx(1 / 3), "n": 3, "claims": 1, "lure_hits": 1, "n_lures": 2, "lure_rate": 0.5,
    }  # fmt: skip
    assert [(c["name"], c["n"], c["f1"]) for c in scores["categories"]] == [
        ("period 1", 2, pytest.approx(0.7)), ("period 2", 1, 0.0),
    ]  # fmt: skip
    assert scores["macro_f1"] == {"mean": pytest.approx(0.35), "n": 2}


def test_locomo_names_its_categories_and_keeps_the_fifth_out_of_the_answerable() -> None:
    answers = [
        answer(0, "gold", task="locomo"),
        answer(1, "tin", category=2, task="locomo"),
        answer(2, "gold", category=2, task="locomo"),
        answer(3, "Not mentioned", category=5, is_trap=True, answer=None, task="locomo"),
    ]
    scores = aggregate("locomo", answers, seed=0)
    assert scores["metric"] == "f1_official"
    assert [(c["category"], c["name"], c["n"], c["is_trap"]) for c in scores["categories"]] == [
        (1, "multi-hop", 1, False), (2, "temporal", 2, False), (5, "adversarial", 1, True),
    ]  # fmt: skip
    assert scores["answerable_f1"]["mean"] == pytest.approx(2 / 3)
    assert scores["macro_f1"]["mean"] == pytest.approx(0.75)
    assert scores["overall_f1"]["mean"] == pytest.approx(0.75)


def test_evidence_is_over_answerable_questions_whose_evidence_is_known() -> None:
    answers = [
        answer(0, "x", evidence=("a", "b"), recalled=("c", "b", "d"), turns_history=10),
        answer(1, "x", evidence=("a",), recalled=("a",), turns_history=10),
        answer(2, "x", recalled=("a", "b", "c", "d"), turns_history=10),
        answer(3, "x", evidence=("a",), evidence_status="partly_unresolved", recalled=("a",)),
        answer(4, "x", evidence=("a",), recalled=("a",), is_trap=True, answer=None),
        answer(5, None, evidence=("a",)),
    ]
    found = aggregate("locco", answers, seed=0)["evidence"]
    assert (found["n"], found["n_without"]) == (2, 2)
    assert (found["recall"], found["turns"], found["corpus_share"]) == (0.75, 2.0, pytest.approx(0.2))
    assert found["mrr"] == 0.75
    assert found["recall_at"] == {"1": 0.5, "5": 0.75, "10": 0.75, "20": 0.75}
    assert found["ndcg_at"]["1"] == 0.5


def test_nothing_to_average_is_none_never_zero() -> None:
    scores = aggregate("locco", [answer(0, None)], seed=0)
    assert scores["answerable_f1"]["mean"] is None
    assert scores["answerable_f1"]["zero_filled"] == 0.0
    assert scores["evidence"]["recall"] is None
    assert scores["false_memory"]["mean"] is scores["false_memory"]["lure_rate"] is None


def test_the_control_of_always_abstaining_needs_no_system(locomo: LoadedData) -> None:
    asks = [blank_sample(ask) for conversation in locomo.conversations for ask in ask_once(conversation)]
    control = always_abstain(asks)
    assert {one.prediction for one in control} == {CONTROL_ANSWER}
    answers = score_samples("locomo", control, locomo.conversations, judge=LexicalJudge(), success_threshold=0.5)
    scores = aggregate("locomo", answers, seed=0)
    assert scores["overall_f1"]["mean"] == pytest.approx(0.226, abs=5e-4)
    assert scores["overall_f1"]["n"] == 1986
    assert scores["answerable_f1"]["mean"] < 0.003
    assert scores["answerable_f1"]["n"] == 1540
    assert [c["n"] for c in scores["categories"]] == [282, 321, 96, 841, 446]
    assert scores["categories"][-1]["f1"] == 1.0
    assert scores["over_refusal"]["mean"] == 1.0
    assert scores["false_memory"]["claims"] == scores["false_memory"]["lure_hits"] == 0
    assert scores["false_memory"]["n_lures"] == 444
    # four questions without evidence, and three that name a turn which does not exist
    assert scores["evidence"]["n"] + scores["evidence"]["n_without"] == 1540
    assert scores["evidence"]["n_without"] == 7
