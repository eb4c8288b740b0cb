"""Intervals resample whole conversations, and say nothing where they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from mlmf.evaluation.statistics import cluster_interval, mean, mean_interval


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
