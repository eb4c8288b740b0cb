"""Every index: order, ties, growth, isolation; BM25 against its formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.retrieval.base import Hit, Index, best_hits
from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.budget import within_budget
from mlmf.retrieval.dense import DenseIndex
from mlmf.retrieval.fusion import HybridIndex, reciprocal_rank
from mlmf.retrieval.vectors import VectorIndex, unit
from tests.systems.doubles import WordEncoder

WORDS = ("cat", "dog", "violin", "garden", "rain")
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), max_size=8)


def dense() -> Index:
    return DenseIndex(WordEncoder(*WORDS))


def hybrid() -> Index:
    return HybridIndex([BM25Index(), dense()], [0.5, 0.5])


INDEXES = pytest.mark.parametrize("new_index", [BM25Index, dense, hybrid])


def filled(new_index: Callable[[], Index], *batches: list[str]) -> Index:
    index = new_index()
    for batch in batches:
        index.add(batch)
    return index


@INDEXES
@settings(max_examples=30, deadline=None)
@given(documents=texts, cut=st.integers(0, 8), queries=texts)
def test_growing_in_steps_is_growing_at_once(
    new_index: Callable[[], Index], documents: list[str], cut: int, queries: list[str]
) -> None:
    once = filled(new_index, documents)
    steps = new_index()
    for part in (documents[:cut], documents[cut:]):
        steps.add(part)
        steps.search(queries, 3)
    assert len(once) == len(steps) == len(documents)
    assert steps.search(queries, 5) == once.search(queries, 5)


@INDEXES
@settings(max_examples=30, deadline=None)
@given(documents=texts, query=st.sampled_from(WORDS))
def test_hits_are_ordered_ties_go_to_the_earlier_text_and_a_shorter_list_is_a_prefix(
    new_index: Callable[[], Index], documents: list[str], query: str
) -> None:
    index = filled(new_index, documents)
    (hits,) = index.search([query], 100)
    assert [hit.position for hit in hits] == [h.position for h in sorted(hits, key=lambda h: (-h.score, h.position))]
    assert len({hit.position for hit in hits}) == len(hits) <= len(documents)
    assert index.search([query], 2) == [hits[:2]]


@INDEXES
def test_an_index_knows_its_own_texts_only(new_index: Callable[[], Index]) -> None:
    other = filled(new_index, ["my cat", "my dog"])
    mine = filled(new_index, ["a violin"])
    assert {hit.position for hit in mine.search(["cat dog violin"], 10)[0]} == {0}
    assert {hit.position for hit in other.search(["cat dog"], 10)[0]} == {0, 1}
    assert new_index().search(["cat"], 3) == [[]]
    assert mine.search([], 3) == []


def test_bm25_scores_are_those_of_the_formula() -> None:
    documents = ["cats purr", "a dog barks at cats and cats", "rain"]
    words = [["cat", "purr"], ["dog", "bark", "at", "cat", "and", "cat"], ["rain"]]
    mean = sum(map(len, words)) / 3
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = {
        i: idf * row.count("cat") / (row.count("cat") + 1.5 * (1 - 0.75 + 0.75 * len(row) / mean))
        for i, row in enumerate(words)
        if "cat" in row
    }
    (hits,) = filled(BM25Index, documents).search(["CAT"], 3)
    assert {hit.position: pytest.approx(hit.score, rel=1e-5) for hit in hits} == expected


def test_stemming_joins_the_forms_of_a_word_and_an_unknown_word_finds_nothing() -> None:
    index = filled(BM25Index, ["She is running", "A quiet day", ""])
    assert [hit.position for hit in index.search(["runs"], 3)[0]] == [0]
    assert index.search(["zebra", "", "!"], 3) == [[], [], []]


def test_vectors_are_compared_by_cosine_with_equal_texts_equal() -> None:
    store = VectorIndex()
    store.add(unit([[3.0, 4.0], [0.0, 0.0]]))
    store.add(unit([[0.6, 0.8 + 1e-6], [1.0, 0.0]]))
    (hits,) = store.search(unit([[3.0, 4.0]]), 4)
    assert [(hit.position, round(hit.score, 4)) for hit in hits] == [(0, 1.0), (2, 1.0), (3, 0.6), (1, 0.0)]


def test_reciprocal_rank_is_the_papers_sum() -> None:
    first = [Hit(4, 9.0), Hit(1, 8.0)]
    second = [Hit(1, 0.3), Hit(7, 0.2)]
    fused = reciprocal_rank([first, second], [0.7, 0.3], k=60)
    expected = {4: 0.7 / 61, 1: 0.7 / 62 + 0.3 / 61, 7: 0.3 / 62}
    assert {hit.position: hit.score for hit in fused} == pytest.approx(expected)
    assert [hit.position for hit in fused] == [1, 4, 7]


def test_a_weight_of_nought_leaves_the_other_ranking() -> None:
    documents = ["cat rain", "dog", "cat cat", "garden cat"]
    index = HybridIndex([filled(BM25Index), dense()], [1.0, 0.0])
    index.add(documents)
    lexical = [hit.position for hit in filled(BM25Index, documents).search(["cat"], 4)[0]]
    assert [hit.position for hit in index.search(["cat"], 4)[0]][: len(lexical)] == lexical


def test_best_hits_leaves_out_what_cannot_match() -> None:
    scores = np.array([1.0, -np.inf, 2.0, 1.0], np.float32)
    assert [hit.position for hit in best_hits(scores, 9)] == [2, 0, 3]


@given(costs=st.lists(st.integers(0, 9), max_size=9), budget=st.integers(0, 30))
def test_within_budget_never_exceeds_it_and_leaves_out_nothing_that_fits(costs: list[int], budget: int) -> None:
    taken = within_budget(costs, budget)
    assert taken == sorted(set(taken))
    for position, cost in enumerate(costs):
        before = sum(costs[earlier] for earlier in taken if earlier < position)
        assert (position in taken) == (before + cost <= budget)
