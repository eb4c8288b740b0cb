"""Cognis in the harness: lines of facts and turns within the budget, and nothing of the conversation before."""

from __future__ import annotations

from collections.abc import Callable

from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.system import CognisSystem
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.systems.text import Answering
from mlmf.types import Query
from tests.systems.cognis.conftest import said
from tests.systems.doubles import WordModel

SESSIONS = [
    said(0, "Hello there!", "Hi! We adopted a grey cat yesterday. And you?", "Oh, not much."),
    said(1, "I bought a violin.", "Is it a good one?", speaker="Ben"),
]


def observed(memory: CognisMemory, model: WordModel, budget: int = 100, neighbours: int = 0) -> CognisSystem:
    system = CognisSystem(Answering(model, 8, budget), memory, turns=3, neighbours=neighbours)
    system.reset()
    for session in SESSIONS:
        system.observe(session)
    return system


def test_facts_and_turns_are_shown_in_the_order_of_time_and_name_their_turns(memory: CognisMemory) -> None:
    model = WordModel()
    query = Query("Who adopted a grey cat, is it a good one, with a violin?")
    (answer,) = observed(memory, model).answer([query])
    assert set(answer.recalled) == {"S0:1", "S1:0", "S1:1"}
    assert model.prompts == [
        context_prompt(
            [
                "[1 May 2023] Anna: We adopted a grey cat yesterday (30 April 2023).",
                "[2 May 2023] Ben: I bought a violin.",
                "[2 May 2023] Ben: Is it a good one?",
            ]
        )
        + question_prompt(query)
    ]


def test_the_budget_holds_and_neighbours_come_after_all_that_was_found(
    memory: CognisMemory, new_memory: Callable[..., CognisMemory]
) -> None:
    (answer,) = observed(memory, WordModel(), budget=14).answer([Query("grey cat")])
    assert answer.recalled == ("S0:1",)
    (wide,) = observed(new_memory(), WordModel(), neighbours=1).answer([Query("adopted grey cat yesterday")])
    assert wide.recalled[0] == "S0:1" and {"S0:0", "S0:2"} <= set(wide.recalled)


def test_a_reset_conversation_is_deleted(memory: CognisMemory) -> None:
    system = observed(memory, WordModel())
    (before,) = system.answer([Query("grey cat")])
    system.reset()
    assert before.recalled and system.answer([Query("grey cat")])[0].recalled == ()
    system.observe(SESSIONS[1])
    assert set(system.answer([Query("grey cat violin")])[0].recalled) <= {"S1:0", "S1:1"}


def test_answering_changes_no_memory(memory: CognisMemory) -> None:
    system = observed(memory, WordModel())
    queries = [Query("grey cat"), Query("violin now?")]
    assert [a.recalled for a in system.answer(queries)] == [a.recalled for a in system.answer(queries)]
    assert [system.answer([query])[0].recalled for query in queries] == [a.recalled for a in system.answer(queries)]
