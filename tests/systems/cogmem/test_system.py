"""In the harness: what the focus of attention chose is shown within the common budget, and recalled turns are named."""

from __future__ import annotations

from datetime import datetime

import pytest

from mlmf.config.cogmem import CogMemSettings
from mlmf.errors import UserError
from mlmf.retrieval.bm25 import BM25Index
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.system import CogMemSystem, TurnSearch
from mlmf.systems.text import Answering
from mlmf.types import Query, Session, Turn
from tests.systems.cogmem.doubles import WORDS, ScriptedModel, count_words
from tests.systems.doubles import WordEncoder, WordModel

LONG = (
    "It was a long day and we talked about many things, as we do. My cat Miso moved to Oslo in May. And so on and on."
)
SESSIONS = [
    Session(0, datetime(2023, 5, 8), (Turn("D1:1", "Anna", LONG), Turn("D1:2", "Ben", "Nice!"))),
    Session(1, datetime(2023, 5, 9), (Turn("D2:1", "Ben", "I bought a violin."), Turn("D2:2", "Anna", "Sweet!"))),
]
QUERY = Query("Where did the cat move?")


def system(
    model: WordModel, *, budget: int = 200, neighbours: int = 0, agent: ScriptedModel | None = None, **parts: object
) -> CogMemSystem:
    search = TurnSearch(BM25Index)
    memory = build_cogmem(
        CogMemSettings(**parts),  # type: ignore[arg-type]
        count_tokens=count_words,
        new_encoder=lambda: WordEncoder(*WORDS),
        load_agent=lambda name: agent or ScriptedModel(),
        rank=search.rank,
    )
    made = CogMemSystem(Answering(model, 8, budget), memory, search, neighbours=neighbours)
    made.reset()
    for session in SESSIONS:
        made.observe(session)
    return made


def test_matching_turns_are_shown_and_named() -> None:
    model = WordModel()
    (answer,) = system(model).answer([QUERY])
    assert answer.recalled[0] == "D1:1"
    assert f"[8 May 2023] Anna: {LONG}" in model.prompts[0]
    assert answer.tokens_read == count_words(model.prompts[0])


def test_where_a_turn_does_not_fit_its_insight_stands_for_it() -> None:
    model = WordModel()
    (answer,) = system(model, budget=16, insight_share=0.9, notes_share=0.0, history_share=0.1).answer([QUERY])
    assert answer.recalled == ("D1:1",)
    assert answer.recalled_lines == ("[8 May 2023] Anna: My cat Miso moved to Oslo in May.",)
    (answer,) = system(
        model, budget=16, long_term=False, notes_share=0.9, history_share=0.1, insight_share=0.0
    ).answer([QUERY])
    assert answer.recalled_lines == ("[8 May 2023] Anna: My cat Miso moved to Oslo in May.",)
    (answer,) = system(model, budget=16, long_term=False, direct_access=False).answer([QUERY])
    assert answer.recalled_lines == ()


def test_no_turn_is_named_twice_and_the_budget_holds() -> None:
    model = WordModel()
    for budget in (0, 5, 9, 20, 45, 60):
        for answer in system(model, budget=budget).answer([QUERY, Query("Who bought a violin?")]):
            assert len(set(answer.recalled)) == len(answer.recalled)
            assert sum(count_words(line) for line in answer.recalled_lines) <= budget


def test_neighbours_of_the_named_turns_come_after_all_that_was_chosen_within_their_session() -> None:
    query = Query("Who bought a violin?")
    turns_alone = {"missing_turns": 1, "long_term": False, "direct_access": False}
    (alone,), (wide,) = (system(WordModel(), neighbours=n, **turns_alone).answer([query]) for n in (0, 1))
    assert alone.recalled == ("D2:1",)
    assert wide.recalled == ("D2:1", "D2:2")
    (narrow,) = system(WordModel(), neighbours=1, budget=8, **turns_alone).answer([query])
    assert narrow.recalled == ("D2:1",)


def test_the_baseline_shows_the_latest_lines() -> None:
    off = {"focus_of_attention": False, "direct_access": False, "long_term": False}
    (answer,) = system(WordModel(), budget=13, **off).answer([QUERY])
    assert answer.recalled == ("D2:2", "D2:1")


def test_a_reset_conversation_leaves_nothing() -> None:
    model = WordModel()
    made = system(model)
    made.answer([QUERY])
    made.reset()
    (answer,) = made.answer([QUERY])
    assert (answer.recalled, answer.recalled_lines) == ((), ())
    made.observe(SESSIONS[1])
    assert set(made.answer([Query("cat violin Oslo")])[0].recalled) == {"D2:1"}
    assert not any("Miso" in prompt for prompt in model.prompts[1:])


def test_answers_do_not_depend_on_how_questions_are_grouped_or_repeated() -> None:
    made = system(WordModel())
    queries = [QUERY, Query("Who bought a violin?"), QUERY]
    together = [answer.recalled_lines for answer in made.answer(queries)]
    assert [made.answer([query])[0].recalled_lines for query in queries] == together


def test_with_a_model_as_agent_its_named_turns_are_shown() -> None:
    def reply(said: str) -> str:
        if said.endswith('"missing": ["..."]}'):
            return '{"enough": false, "missing": ["D2:2"]}'
        return "nothing of this"

    parts = {"extractor": "llm", "long_term": False, "direct_access": False}
    (answer,) = system(WordModel(), agent=ScriptedModel(reply), **parts).answer([QUERY])
    assert answer.recalled == ("D2:2",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"focus_of_attention": False}, "also switch off direct_access and long_term"),
        ({"insight_share": 0.8, "history_share": 0.3}, "must be at most 1 together, got 1.2"),
        ({"notes_share": -0.1}, r"cogmem\.notes_share must be in \[0, 1\], got -0\.1"),
        ({"focus_tokens": 0}, r"cogmem\.focus_tokens must be at least 1, got 0"),
        ({"session_hours": 0}, r"cogmem\.session_hours must be more than 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CogMemSettings(**settings)  # type: ignore[arg-type]


def test_results_show_what_may_change_an_answer_and_no_place() -> None:
    shown = CogMemSettings(sessions="/somewhere/sessions.db", vectors="/somewhere/v.db").changing_answers
    assert "somewhere" not in str(shown) and "memory_agent" not in shown
    assert "memory_agent" in CogMemSettings(extractor="llm").changing_answers
