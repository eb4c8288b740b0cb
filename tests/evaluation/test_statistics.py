"""Intervals resample whole conversations, and say nothing where they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from mlmf.evaluation.statistics import cluster_interval, holm, mean, mean_interval, paired_difference


def test_a_mean_over_nothing_is_none() -> None:
    assert mean([]) == {"mean": None, "n": 0}
    assert mean([True, False]) == {"mean": 0.5, "n": 2}


def test_the_interval_resamples_conversations_and_is_seeded() -> None:
    # within a conversation all scores agree, so resampling questions would give a much narrower interval
    values = [(f"c{value}", value) for value in (0.0, 0.5, 1.0) for _ in range(100)]
    low, high = mean_interval(values, seed=3) or (0.0, 0.0)
    rng = np.random.default_rng(0)
    means = rng.choice([0.0, 0.5, 1.0], size=(20_000, 3)).mean(axis=1)
    assert (low, high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=0.17)
    assert high - low > 0.6
    assert mean_interval(values, seed=3) == [low, high]


def test_the_interval_weighs_conversations_by_their_questions() -> None:
    assert mean_interval([*[("large", 1.0)] * 99, ("small", 0.0)], seed=0) == [0.0, 1.0]


def test_one_conversation_or_an_undefined_resample_has_no_interval() -> None:
    assert mean_interval([("only", 1.0), ("only", 0.0)], seed=0) is None
    counts = np.array([0.0, 1.0])
    assert cluster_interval(2, lambda chosen: 1.0 / counts[chosen].sum(axis=-1), seed=0) is None


def test_a_paired_difference_is_that_of_the_pairs() -> None:
    pairs = [
        (f"c{number // 5}", first, first + step) for number, (first, step) in enumerate([(0.1, 0.2), (0.7, 0.1)] * 10)
    ]
    found = paired_difference(pairs, seed=0)
    steps = np.array([second - first for _, first, second in pairs])
    assert found["difference"] == pytest.approx(0.15)
    assert found["effect_size"] == pytest.approx(0.15 / steps.std(ddof=1))
    assert found["t"] == pytest.approx(0.15 / (steps.std(ddof=1) / np.sqrt(20)))
    assert found["p_t"] < 1e-6
    assert found["p_bootstrap"] == pytest.approx(2 / 2_001)
    assert found["ci95"][0] > 0.1


def test_equal_systems_have_no_t_and_no_effect() -> None:
    found = paired_difference([("a", 0.5, 0.5), ("b", 1.0, 1.0)], seed=0)
    assert (found["difference"], found["t"], found["p_t"], found["effect_size"]) == (0.0, None, None, None)
    assert found["p_bootstrap"] == 1.0


def test_the_bootstrap_of_pairs_resamples_conversations() -> None:
    # one conversation speaks for the second system with many questions, one against it with few
    found = paired_difference([*[("a", 0.0, 1.0)] * 50, *[("b", 1.0, 0.9)] * 2], seed=0)
    assert found["p_t"] < 0.001
    assert found["p_bootstrap"] > 0.3


def test_holm_leaves_out_what_does_not_exist() -> None:
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert holm([None]) == [None]
