"""What the text systems show to the answer model, seen through a model that records its prompts."""

from __future__ import annotations

import logging
from datetime import datetime

import pytest

from mlmf.systems.baselines import FullContext, NoMemory, RecentWindow, latest_lines
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.systems.text import Answering, Line
from mlmf.types import Query, answer_prompt, format_line
from tests.systems.doubles import WordModel, session


def test_no_memory_sees_the_question_alone() -> None:
    model = WordModel()
    system = NoMemory(Answering(model, 8, 400))
    system.reset()
    system.observe(session(0))
    query = Query("What did Anna adopt?", datetime(2023, 6, 1))
    answer = system.answer([query])[0]
    assert model.prompts == [question_prompt(query)]
    assert answer.recalled == ()
    assert answer.tokens_read == model.count_tokens(model.prompts[0])


def test_recent_window_shows_the_latest_dated_lines_within_its_budget() -> None:
    model = WordModel()
    # a line has 8 words: "[9 May 2023] Anna: word1x1 and some more"
    system = RecentWindow(Answering(model, 8, 24))
    for index in range(3):
        system.observe(session(index))
    answer = system.answer([Query("What?")])[0]
    lines = [
        "[9 May 2023] Anna: word1x1 and some more",
        "[10 May 2023] Anna: word2x0 and some more",
        "[10 May 2023] Anna: word2x1 and some more",
    ]
    assert model.prompts == [context_prompt(lines) + question_prompt(Query("What?"))]
    assert answer.recalled == ("S2:1", "S2:0", "S1:1")
    assert answer.recalled_lines == tuple(reversed(lines))


def test_full_context_cuts_the_oldest_turns_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    model = WordModel(window=400)
    system = FullContext(Answering(model, 8, 400))
    for index in range(20):
        system.observe(session(index))
    with caplog.at_level(logging.WARNING):
        first = system.answer([Query("What?")])[0]
        system.answer([Query("When?")])
    assert 0 < len(first.recalled) < 40
    assert first.recalled[0] == "S19:1"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert first.turns_left_out == 40 - len(first.recalled)
    assert f"the oldest {first.turns_left_out} of 40 turns are left out" in messages[0]


def test_full_context_shows_everything_that_fits() -> None:
    model = WordModel()
    system = FullContext(Answering(model, 8, 400))
    for index in range(3):
        system.observe(session(index))
    assert len(system.answer([Query("What?")])[0].recalled) == 6


def test_what_is_shown_does_not_depend_on_the_batch() -> None:
    model = WordModel(window=400)
    system = FullContext(Answering(model, 8, 400))
    for index in range(20):
        system.observe(session(index))
    queries = [Query("What?"), Query("What did Anna say on that day in May about all of her many cats?")]
    together = system.answer(queries)
    assert [system.answer([query])[0].recalled for query in queries] == [answer.recalled for answer in together]


def test_reset_forgets_the_conversation_before() -> None:
    model = WordModel()
    system = RecentWindow(Answering(model, 8, 100))
    system.observe(session(0))
    system.reset()
    system.observe(session(1))
    system.answer([Query("What?")])
    assert "word0" not in model.prompts[0]
    assert "word1" in model.prompts[0]


@pytest.mark.parametrize(("reply", "abstained"), [("Not mentioned in the conversation", True), ("a cat", False)])
def test_a_refusal_is_marked(reply: str, abstained: bool) -> None:
    system = NoMemory(Answering(WordModel(reply=reply), 8, 400))
    assert system.answer([Query("What?")])[0].abstained is abstained


@pytest.mark.parametrize(("budget", "kept"), [(0, ""), (2, ""), (3, "c"), (5, "cb"), (7, "cb"), (8, "cba")])
def test_latest_lines_are_an_unbroken_run(budget: int, kept: str) -> None:
    lines = [Line(i, 0, (text,), text, tokens) for i, (text, tokens) in enumerate([("a", 3), ("b", 2), ("c", 3)])]
    assert "".join(line.text for line in latest_lines(lines, budget)) == kept


def test_the_prompt_names_the_date_only_where_there_is_one() -> None:
    assert "Date of the question: 1 June 2023\n" in question_prompt(Query("What?", datetime(2023, 6, 1)))
    assert "Date" not in question_prompt(Query("What?"))
    assert question_prompt(Query("What?")).endswith("Question: What?\nAnswer:")
    assert context_prompt([]) == ""


def test_a_checkpoints_model_is_asked_as_it_was_trained() -> None:
    model = WordModel()
    system = RecentWindow(Answering(model, 8, 500, instruct=False))
    told = session(0)
    system.observe(told)
    system.answer([Query("What?")])
    lines = [format_line(turn, told.date) for turn in told.turns]
    assert model.prompts == [answer_prompt(Query("What?"), lines)]
