"""Recall, reciprocal rank and NDCG on rankings small enough to check by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.evaluation.evidence import all_at, any_at, ndcg_at, recall_at, reciprocal_rank

RANKED = ("x", "a", "y", "b")


def test_figures_of_one_ranking() -> None:
    assert [recall_at(RANKED, ("a", "b"), k) for k in (1, 2, 3, 4, 9)] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert [any_at(RANKED, ("a", "b"), k) for k in (1, 2, 4)] == [0.0, 1.0, 1.0]
    assert [all_at(RANKED, ("a", "b"), k) for k in (1, 2, 4)] == [0.0, 0.0, 1.0]
    assert reciprocal_rank(RANKED, ("a", "b")) == 0.5
    assert reciprocal_rank(RANKED, ("c",)) == 0.0
    best = 1 + 1 / math.log2(3)
    assert ndcg_at(RANKED, ("a", "b"), 4) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / best)
    # with one place to fill, one of two evidence turns is the best there is
    assert ndcg_at(("a",), ("a", "b"), 1) == 1.0


def test_evidence_named_twice_counts_once() -> None:
    assert recall_at(("a",), ("a", "a", "b"), 1) == 0.5
    assert ndcg_at(("a", "a"), ("a", "b"), 2) < 1.0


@settings(deadline=None)
@given(st.permutations("abcdef"), st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 8))
def test_figures_stay_within_bounds_and_reading_everything_finds_everything(
    ranked: list[str], evidence: set[str], k: int
) -> None:
    for value in (recall_at(ranked, evidence, k), ndcg_at(ranked, evidence, k), reciprocal_rank(ranked, evidence)):
        assert 0.0 <= value <= 1.0
    assert recall_at(ranked, evidence, 6) == len(evidence & set("abcdef")) / len(evidence)
