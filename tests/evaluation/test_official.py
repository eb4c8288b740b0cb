"""The official LoCoMo scorer, oddity by oddity, and its known figures on the published file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.official import f1_multi, f1_official, f1_score, normalize_answer
from mlmf.types import Question


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The U.S., and a well-being", "us wellbeing"),
        ("  An  apple\tand\nthe pear ", "apple pear"),
        ("25 May, 2022", "25 may 2022"),
        ("rock-and-roll", "rockandroll"),
        ("it\u2019s \u2014 done", "it\u2019s \u2014 done"),
        ("1,000", "1000"),
    ],
)
def test_normalisation(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "gold", "category", "expected"),
    [
        ("25 May 2022", "25 May, 2022", 1, 0.65),
        ("May 7th, 2023", "7 May 2023", 2, 0.667),
        ("2023-05-07", "7 May 2023", 2, 0.0),
        ("it\u2019s", "it's", 4, 0.0),
        ("caf\u00e9", "cafe", 4, 0.0),
        ("", "cafe", 4, 0.0),
        ("", "cafe, bar", 1, 0.0),
        ("painted pictures", "painting a picture", 4, 1.0),
        ("yes; since he said so", "yes; since he said so", 3, 0.333),
        ("yes; since he said so", "yes; since he said so", 4, 1.0),
        ("cat, dog, fish, bird", "dog, cat", 1, 1.0),
        ("cat cat", "cat", 4, 0.667),
    ],
)
def test_single_questions(prediction: str, gold: str, category: int, expected: float) -> None:
    assert f1_official(prediction, gold, category) == expected


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("No information available", 1.0),
        ("That is NOT MENTIONED in the conversation.", 1.0),
        ("I don't know", 0.0),
        ("", 0.0),
        ("No", 0.0),
    ],
)
def test_category_5_wants_one_of_two_phrases_whatever_the_gold(prediction: str, expected: float) -> None:
    assert f1_official(prediction, "No", 5) == expected
    assert f1_official(prediction, None, 5) == expected


def test_what_cannot_be_scored_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a gold answer"):
        f1_official("x", None, 4)
    with pytest.raises(ValueError, match="got 6"):
        f1_official("x", "x", 6)


def official_mean(data: LoadedData, answer: Callable[[Question], str | None], categories: tuple[int, ...]) -> float:
    questions = [q for conversation in data.conversations for q in conversation.questions if q.category in categories]
    scores = [f1_official(answer(q) or "", q.answer, q.category or 0) for q in questions]
    return sum(scores) / len(scores)


def test_the_gold_does_not_reach_1_in_category_3(locomo: LoadedData) -> None:
    assert official_mean(locomo, lambda q: q.answer, (3,)) == pytest.approx(0.9274, abs=5e-5)
    assert official_mean(locomo, lambda q: q.answer, (1, 2, 4)) == 1.0


def test_the_gold_joined_by_and_loses_in_category_1(locomo: LoadedData) -> None:
    def joined(question: Question) -> str:
        return (question.answer or "").replace(", ", " and ").replace(",", " and ")

    assert official_mean(locomo, joined, (1,)) == pytest.approx(0.7085, abs=1e-4)
    questions = [q for conversation in locomo.conversations for q in conversation.questions if q.category == 1]
    assert len(questions) == 282
    assert sum(f1_official(joined(q), q.answer, 1) < 1 for q in questions) == 169


@pytest.mark.parametrize(("category", "expected"), [(1, 0.772), (2, 0.721), (3, 0.692), (4, 0.738)])
def test_a_full_sentence_costs_a_quarter(locomo: LoadedData, category: int, expected: float) -> None:
    def sentence(question: Question) -> str:
        gold = question.answer or ""
        return f"The answer is {gold.split(';')[0].strip() if category == 3 else gold}."

    assert official_mean(locomo, sentence, (category,)) == pytest.approx(expected, abs=5e-4)


def test_always_abstaining_earns_22_5_percent_from_category_5_alone(locomo: LoadedData) -> None:
    questions = [q for conversation in locomo.conversations for q in conversation.questions]
    scores = [(q.category, f1_official("Not mentioned", q.answer, q.category or 0)) for q in questions]
    assert len(scores) == 1986
    assert sum(score for category, score in scores if category == 5) / len(scores) == pytest.approx(0.225, abs=5e-4)
    assert sum(score for category, score in scores if category != 5) / len(scores) < 0.002


def oracle_f1(prediction: str, gold: str) -> float:
    """F1 over multisets by crossing off one token after the other; for words the stemmer leaves alone."""
    left = normalize_answer(gold).split()
    total = len(left)
    predicted = normalize_answer(prediction).split()
    shared = 0
    for word in predicted:
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(predicted) + total) if shared else 0.0


WORDS = st.lists(st.sampled_from(["cat", "dog", "the", "2023", "may", "red,"]), max_size=6).map(" ".join)


@given(WORDS, WORDS)
def test_f1_is_the_multiset_overlap(prediction: str, gold: str) -> None:
    assert f1_score(prediction, gold) == pytest.approx(oracle_f1(prediction, gold))
    assert f1_score(prediction, gold) == pytest.approx(f1_score(gold, prediction))


@given(WORDS, WORDS, WORDS)
def test_a_surplus_part_never_costs_in_category_1(prediction: str, gold: str, surplus: str) -> None:
    assert f1_multi(f"{prediction}, {surplus}", gold) >= f1_multi(prediction, gold)
