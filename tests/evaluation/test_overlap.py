"""The other metrics in circulation, against figures worked out on paper or given by the packages they come from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.evaluation.overlap import bleu1, exact_match, f1_set, rouge1, rouge_l

TEXTS = st.text(alphabet="abc ,.", max_size=20)


def test_set_f1_counts_a_word_once_and_stems_nothing() -> None:
    assert f1_set("cat cat", "Cat!") == 1.0
    assert f1_set("cats", "cat") == 0.0
    assert f1_set("a cat", "a dog") == 0.5
    assert f1_set("", "cat") == f1_set("cat", "") == 0.0


def test_bleu1_is_clipped_precision_with_a_brevity_penalty() -> None:
    assert bleu1("the cat", "the cat sat on the mat") == pytest.approx(math.exp(1 - 6 / 2))
    assert bleu1("the the the cat", "the cat") == pytest.approx(2 / 4)
    assert bleu1("7 May 2023.", "7 May 2023") == pytest.approx(3 / 4)
    assert bleu1("", "cat") == bleu1("cat", "") == 0.0
    assert bleu1("dog", "cat") == 0.0


def test_rouge_has_the_values_of_the_package_rouge_score() -> None:
    said, gold = "running cats in a garden", "The cats were running in the Gardens"
    assert rouge1(said, gold) == pytest.approx(0.6666666666666666)
    assert rouge_l(said, gold) == pytest.approx(0.5)
    assert rouge1("", gold) == rouge_l("\u2014", gold) == 0.0


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_a_subsequence_is_never_more_than_the_bag(said: str, gold: str) -> None:
    assert 0.0 <= rouge_l(said, gold) <= rouge1(said, gold) <= 1.0
    assert 0.0 <= bleu1(said, gold) <= 1.0


def test_exact_match_ignores_case_articles_and_punctuation_but_not_order() -> None:
    assert exact_match("The Cat!", "cat")
    assert not exact_match("2023 May", "May 2023")
