"""The triangle of a memory whose forgetting is known, and figures against plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mlmf.evaluation.consistency import Claim, Verdict
from mlmf.evaluation.retention import (
    average_forgetting,
    backward_transfer,
    figures,
    figures_over_seeds,
    mean_retention,
    retention,
)
from mlmf.evaluation.scored import Scored
from tests.evaluation.answers import answer

PERIODS = {(user, period): period + 1 for user in ("a", "b") for period in range(6)}


def stream(user: str, remembered: int, **failures: Any) -> list[Scored]:
    """Answers of a user with one fact a period, by a memory that keeps the last ``remembered`` periods."""
    return [
        answer(p, None if failures.get("fails") == (t, p) else "gold" if t - p < remembered else "tin", conversation=user, period=t + 1)
        for t in range(6)
        for p in range(t + 1)
    ]  # fmt: skip


def found(answers: list[Scored]) -> dict[str, Any]:
    return figures(answers, PERIODS, lambda one: one.main, seed=0)


def test_a_memory_of_two_periods_forgets_as_it_should() -> None:
    result = found(stream("a", 2) + stream("b", 2))
    assert result["A"] == [[1.0], [1.0, 1.0], [0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert [len(row) for row in result["n"]] == [1, 2, 3, 4, 5, 6]
    assert {n for row in result["n"] for n in row} == {2}
    assert result["r6"] == {"value": 0.0, "ci95": [0.0, 0.0], "numerator": 0.0, "denominator": 1.0}
    assert result["mean_retention"]["value"] == pytest.approx(1 / 5)
    assert result["average_forgetting"]["value"] == pytest.approx(4 / 5)
    assert result["backward_transfer"]["value"] == pytest.approx(-4 / 5)


def test_a_bad_start_leaves_the_ratio_null_and_both_numbers_stand() -> None:
    result = found(stream("a", 0))
    assert result["r6"] == {"value": None, "ci95": None, "numerator": 0.0, "denominator": 0.0}
    assert result["mean_retention"]["value"] is None
    assert result["average_forgetting"]["value"] == 0.0


def test_figures_are_spread_over_seeds() -> None:
    second = [replace(one, sample=replace(one.sample, seed=1)) for one in stream("a", 2)]
    result = figures_over_seeds([*stream("a", 6), *second], PERIODS)
    assert result["r6"] == {"values": {"0": 1.0, "1": 0.0}, "mean": 0.5, "sd": pytest.approx(0.5**0.5)}
    assert result["average_forgetting"]["values"] == {"0": 0.0, "1": pytest.approx(4 / 5)}


def test_intervals_resample_users() -> None:
    low, high = found(stream("a", 6) + stream("b", 1))["r6"]["ci95"]
    assert (low, high) == (0.0, 1.0)


def test_a_failure_is_left_out_of_its_cell_and_counts_as_zero_beside_it() -> None:
    result = found(stream("a", 6, fails=(5, 0)) + stream("b", 6))
    assert (result["n"][5][0], result["A"][5][0], result["A_zero_filled"][5][0]) == (1, 1.0, 0.5)


def test_claims_on_traps_stand_beside_refusals_for_every_period() -> None:
    trap = answer(6, "a tin", conversation="a", period=6, answer=None, is_trap=True, lure="tin")
    refused = answer(7, "I don't know", conversation="a", period=6)
    result = retention([*stream("a", 6), trap, refused], {**PERIODS, ("a", 7): 1}, seed=0)
    assert [entry["t"] for entry in result["by_period"]] == [1, 2, 3, 4, 5, 6]
    last = result["by_period"][-1]
    assert (last["false_memory"]["mean"], last["false_memory"]["lure_hits"]) == (1.0, 1)
    assert last["over_refusal"] == {"mean": pytest.approx(1 / 7), "n": 7}
    assert result["by_period"][0]["false_memory"]["mean"] is None
    # traps are no part of the triangle, a refused fact is
    assert result["consistency"]["n"][5] == [2, 1, 1, 1, 1, 1]
    assert result["consistency"]["A"][5][0] == result["f1"]["A"][5][0] == 0.5


@settings(deadline=None)
@given(arrays(np.float64, (6, 6), elements=st.floats(0.1, 1.0)))
def test_figures_equal_plain_loops(a: np.ndarray) -> None:
    earlier = range(5)
    assert mean_retention(a) == pytest.approx(sum(a[5, p] / a[p, p] for p in earlier) / 5)
    best = [max(a[t, p] for t in range(p, 6)) for p in earlier]
    assert average_forgetting(a) == pytest.approx(sum(best[p] - a[5, p] for p in earlier) / 5)
    assert backward_transfer(a) == pytest.approx(sum(a[5, p] - a[p, p] for p in earlier) / 5)


def test_an_answer_the_judge_gave_no_verdict_on_is_left_out_of_its_cell() -> None:
    class Judge:
        name = "judge"

        def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
            return [Verdict(None if one.answer == "lead" else one.answer == "tin") for one in claims]

    said = ["gold", "tin", "lead"]
    answers = [answer(p, said[p], period=6, llm_judge=Judge()) for p in range(3)]
    periods = {("c", p): p + 1 for p in range(3)}
    told = retention(answers, periods, seed=0)["J"]
    assert (told["A"][5][:3], told["n"][5][:3]) == ([0.0, 1.0, None], [1, 1, 0])
    assert told["A_zero_filled"][5][:3] == [0.0, 1.0, 0.0]
    assert retention([answer(0, "gold", period=6)], periods, seed=0)["J"] is None
