"""Means, denominators and intervals over hand-made samples whose figures can be worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.samples import Sample
from mlmf.evaluation.scores import CONTROL_ANSWER, aggregate, always_abstain, usage


def sample(index: int, score: float | None, *, conversation: str = "c", **changes: Any) -> Sample:
    values = {"gold": "gold", "category": 1, "is_trap": False, "prediction": "some words", "score": score}
    return Sample(conversation, index, f"{conversation}#{index}", "Who?", **(values | changes))


def failed(index: int, **changes: Any) -> Sample:
    return sample(index, None, status="error", error="why", prediction=None, **changes)


LOCCO = [
    sample(0, 1.0, category=1, prediction="Gold"),
    sample(1, 0.5, category=1),
    sample(2, 0.0, category=2, abstained=True),
    sample(3, 1.0, category=2, gold=None, is_trap=True, abstained=True),
    sample(4, 0.0, category=2, gold=None, is_trap=True),
    failed(5, category=1),
]


def test_means_leave_failures_out_and_zero_filled_ones_do_not() -> None:
    scores = aggregate("locco", LOCCO, seed=0)
    assert scores["answerable_f1"]["mean"] == pytest.approx(0.5)
    assert scores["answerable_f1"]["n"] == 3
    assert scores["answerable_f1"]["zero_filled"] == pytest.approx(1.5 / 4)
    assert scores["overall_f1"] == {"mean": pytest.approx(0.5), "n": 5, "zero_filled": pytest.approx(2.5 / 6)}
    assert scores["exact_match"] == {"mean": pytest.approx(1 / 3), "n": 3}
    assert scores["abstention_on_traps"] == {"mean": 0.5, "n": 2}
    assert scores["over_refusal"] == {"mean": pytest.approx(1 / 3), "n": 3}


def test_traps_of_a_period_do_not_count_in_it() -> None:
    scores = aggregate("locco", LOCCO, seed=0)
    assert [(c["name"], c["n"], c["f1"]) for c in scores["categories"]] == [
        ("period 1", 2, 0.75), ("period 2", 1, 0.0),
    ]  # fmt: skip
    assert scores["macro_f1"] == {"mean": 0.375, "n": 2}


def test_locomo_names_its_categories_and_keeps_the_fifth_out_of_the_answerable() -> None:
    samples = [
        sample(0, 0.2, category=1),
        sample(1, 0.6, category=2),
        sample(2, 0.4, category=2),
        sample(3, 1.0, category=5, is_trap=True, gold=None, abstained=True),
    ]
    scores = aggregate("locomo", samples, seed=0)
    assert [(c["category"], c["name"], c["n"]) for c in scores["categories"]] == [
        (1, "multi-hop", 1), (2, "temporal", 2), (5, "adversarial", 1),
    ]  # fmt: skip
    assert scores["answerable_f1"]["mean"] == pytest.approx(0.4)
    assert scores["macro_f1"]["mean"] == pytest.approx(0.35)
    assert scores["overall_f1"]["mean"] == pytest.approx(0.55)


def test_evidence_recall_is_over_questions_with_evidence() -> None:
    samples = [
        sample(0, 0.0, evidence=("a", "b"), recalled=("b", "c", "d")),
        sample(1, 0.0, evidence=("a",), recalled=("a",)),
        sample(2, 0.0, recalled=("a", "b", "c", "d")),
        sample(3, 0.0, evidence=("a",), recalled=("a",), is_trap=True),
    ]
    assert aggregate("locco", samples, seed=0)["evidence_recall"] == {"mean": 0.75, "n": 2, "k": 2.0}


def test_nothing_to_average_is_none_never_zero() -> None:
    scores = aggregate("locco", [failed(0)], seed=0)
    assert scores["answerable_f1"]["mean"] is None
    assert scores["answerable_f1"]["zero_filled"] == 0.0
    assert scores["evidence_recall"] == {"mean": None, "n": 0, "k": None}
    assert usage([failed(0)])["seconds"] == {"mean": None, "p50": None, "p95": None}


def test_the_interval_resamples_conversations_and_is_seeded() -> None:
    # within a conversation all scores agree, so resampling questions would give a much narrower interval
    samples = [sample(i, value, conversation=f"c{value}") for value in (0.0, 0.5, 1.0) for i in range(100)]
    low, high = aggregate("locco", samples, seed=3)["answerable_f1"]["ci95"]
    rng = np.random.default_rng(0)
    means = rng.choice([0.0, 0.5, 1.0], size=(20_000, 3)).mean(axis=1)
    assert (low, high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=0.17)
    assert high - low > 0.6
    assert aggregate("locco", samples, seed=3)["answerable_f1"]["ci95"] == [low, high]


def test_the_interval_weighs_conversations_by_their_questions() -> None:
    large = [sample(i, 1.0, conversation="large") for i in range(99)]
    scores = aggregate("locco", [*large, sample(0, 0.0, conversation="small")], seed=0)["answerable_f1"]
    assert scores["mean"] == pytest.approx(0.99)
    assert scores["ci95"] == [0.0, 1.0]
    assert scores["conversations"] == 2


def test_one_conversation_has_no_interval() -> None:
    assert aggregate("locco", LOCCO, seed=0)["answerable_f1"]["ci95"] is None


def test_usage_is_per_answered_question() -> None:
    samples = [
        sample(0, 0.0, tokens_read=10, tokens_written=2, tokens_history=100, seconds=1.0, gates={"working": 0.2}),
        sample(1, 0.0, tokens_read=30, tokens_written=4, tokens_history=100, seconds=3.0, gates={"working": 0.4}),
        failed(2, tokens_history=100),
    ]
    cost = usage(samples)
    assert (cost["tokens_read"], cost["tokens_written"], cost["history_share"]) == (20.0, 3.0, pytest.approx(0.2))
    assert cost["seconds"] == {"mean": 2.0, "p50": 2.0, "p95": pytest.approx(2.9)}
    assert cost["gates"] == {"working": pytest.approx(0.3)}


def test_the_control_of_always_abstaining_on_locomo(locomo: LoadedData) -> None:
    questions = [question for conversation in locomo.conversations for question in conversation.questions]
    samples = [
        Sample(q.conversation_id, q.index, q.id, q.text, q.answer, q.category, q.is_trap, prediction="x", score=0.0)
        for q in questions
    ]
    control = always_abstain("locomo", samples)
    assert {one.prediction for one in control} == {CONTROL_ANSWER}
    scores = aggregate("locomo", control, seed=0)
    assert scores["overall_f1"]["mean"] == pytest.approx(0.226, abs=5e-4)
    assert scores["overall_f1"]["n"] == 1986
    assert scores["answerable_f1"]["mean"] < 0.003
    assert scores["answerable_f1"]["n"] == 1540
    assert [c["n"] for c in scores["categories"]] == [282, 321, 96, 841, 446]
    assert scores["categories"][-1]["f1"] == 1.0
    assert scores["over_refusal"]["mean"] == 1.0
