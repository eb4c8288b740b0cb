"""What the searching systems show: the best turns of this conversation, within the budget, in the order of time."""

from __future__ import annotations

from datetime import datetime

from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.dense import DenseIndex
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.systems.retrieved import RetrievedTurns
from mlmf.systems.text import Answering
from mlmf.types import Query, Session, Turn
from tests.systems.doubles import WordEncoder, WordModel

SESSIONS = [
    Session(0, datetime(2023, 5, 8), (Turn("S0:0", "Anna", "I adopted a cat"), Turn("S0:1", "Ben", "That is nice"))),
    Session(1, datetime(2023, 5, 9), (Turn("S1:0", "Anna", "My cat is called Tom, a good cat"),)),
    Session(
        2, datetime(2023, 6, 1), (Turn("S2:0", "Ben", "I bought a violin"), Turn("S2:1", "Anna", "Look", "a cat"))
    ),
]


def bm25(model: WordModel, budget: int = 100, turns: int = 20) -> RetrievedTurns:
    system = RetrievedTurns("bm25", Answering(model, 8, budget), BM25Index, turns=turns)
    system.reset()
    for session in SESSIONS:
        system.observe(session)
    return system


def test_each_query_gets_its_own_turns_best_first_and_sees_them_in_the_order_of_time() -> None:
    model = WordModel()
    queries = [Query("What is the cat called?"), Query("Who bought a violin?")]
    cat, violin = bm25(model, turns=2).answer(queries)
    assert cat.recalled[0] == "S1:0"
    assert violin.recalled[0] == "S2:0"
    shown = sorted(cat.recalled_lines, key=lambda line: "[9 May" in line)
    assert model.prompts[0] == context_prompt(shown) + question_prompt(queries[0])
    assert len(cat.recalled) == 2


def test_a_caption_is_searched_and_shown() -> None:
    assert "S2:1" in bm25(WordModel()).answer([Query("cat")])[0].recalled


def test_the_budget_bounds_what_is_shown_and_a_long_turn_keeps_no_short_one_out() -> None:
    # "[9 May 2023] Anna: My cat is called Tom, a good cat" has 12 words, "[8 May 2023] Anna: I adopted a cat" 8
    answer = bm25(WordModel(), budget=11).answer([Query("good cat called Tom")])[0]
    assert answer.recalled == ("S0:0",)


def test_a_reset_conversation_cannot_be_found() -> None:
    model = WordModel()
    for system in (
        bm25(model),
        RetrievedTurns("dense", Answering(model, 8, 100), lambda: DenseIndex(WordEncoder("cat", "violin")), turns=5),
    ):
        system.observe(SESSIONS[0])
        system.reset()
        assert system.answer([Query("cat")])[0].recalled == ()
        system.observe(SESSIONS[2])
        assert set(system.answer([Query("a cat and a violin")])[0].recalled) == {"S2:0", "S2:1"}


def test_a_hit_brings_the_turns_around_it_of_its_own_session() -> None:
    query = [Query("violin")]
    system = RetrievedTurns("bm25", Answering(WordModel(), 8, 100), BM25Index, turns=20, neighbours=1)
    for session in SESSIONS:
        system.observe(session)
    assert system.answer(query)[0].recalled == ("S2:0", "S2:1")
    system.neighbours = 0
    assert system.answer(query)[0].recalled == ("S2:0",)


def test_a_question_that_finds_nothing_is_asked_alone() -> None:
    model = WordModel()
    query = Query("Xylophone?")
    assert bm25(model).answer([query])[0].recalled == ()
    assert model.prompts == [question_prompt(query)]
