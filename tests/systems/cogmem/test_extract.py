"""By rules: statements are kept word for word, small talk is not, and insights that say the same become one."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmf.systems.cogmem import extract
from mlmf.systems.cogmem.extract import RuleMemoryAgent, worth
from mlmf.systems.cogmem.records import Insight, Note, NoteUpdate, Said, TurnRecord, said_in_exchange


def agent(notes: int = 24) -> RuleMemoryAgent:
    return RuleMemoryAgent(notes=notes, merge_similarity=0.9)


def turn(user: str, reply: str = "", label: str = "T1") -> TurnRecord:
    return TurnRecord(key="k", parent=None, number=1, label=label, said=said_in_exchange(user, reply), reply=reply)


def test_the_examples_are_right() -> None:
    assert doctest.testmod(extract).failed == 0


def test_statements_become_notes_of_their_kind_and_small_talk_does_not() -> None:
    said = (
        "Hi there! My sister Anna moved to Oslo in May. I want to learn the violin. We will meet on Friday. And you?"
    )
    update = agent().update((), turn(said, "Great, good luck!"))
    assert [(note.kind, note.text) for note in update.notes] == [
        ("conclusion", "User: My sister Anna moved to Oslo in May."),
        ("goal", "User: I want to learn the violin."),
        ("plan", "User: We will meet on Friday."),
    ]
    assert update.summary == "User: My sister Anna moved to Oslo in May. / Assistant: Great, good luck!"


def test_results_of_a_game_are_kept() -> None:
    update = agent().update((), turn("Verifier 2 for 345: FAIL", "So blue must be greater than 3."))
    assert [note.text for note in update.notes] == [
        "User: Verifier 2 for 345: FAIL",
        "Assistant: So blue must be greater than 3.",
    ]


def test_a_note_is_kept_once_with_its_first_turn() -> None:
    first = agent().update((), turn("I live in Oslo with my cat.", label="T1"))
    again = agent().update(first.notes, turn("I live in Oslo with my cat.", label="T2"))
    assert again.notes == first.notes


sentences = st.sampled_from(
    [
        "I moved to Oslo in 2021.",
        "My dog Rex likes the garden.",
        "It rains today.",
        "Thanks!",
        "We will visit Rome.",
        "",
    ]
)


@given(said=st.lists(sentences, max_size=8), most=st.integers(1, 4))
def test_notes_are_bounded_in_order_and_never_made_up(said: list[str], most: int) -> None:
    update = NoteUpdate(notes=(), summary="")
    for number, text in enumerate(said, start=1):
        update = agent(most).update(update.notes, turn(text, label=f"T{number}"))
    assert len(update.notes) <= most
    assert {note.text.removeprefix("User: ") for note in update.notes} <= set(said)
    numbers = [int(note.turn[1:]) for note in update.notes]
    assert numbers == sorted(numbers)


def test_of_too_many_notes_those_that_carry_least_go() -> None:
    strong, weak = "My sister Anna moved to Oslo in May 2021.", "It rains today in the valley."
    assert worth(strong) > worth(weak) > 1
    notes: tuple[Note, ...] = ()
    for text in (strong, weak, "We like the old garden today."):
        notes = agent(2).update(notes, turn(text)).notes
    assert [note.text for note in notes] == [f"User: {strong}", "User: We like the old garden today."]


def test_distilled_are_the_statements_with_header_and_turn() -> None:
    said = (Said(header="[8 May 2023] Anna:", text="Hi! I adopted a cat in Oslo. Nice?"),)
    record = turn("").model_copy(update={"said": said, "label": "D1:3"})
    assert agent().distil([record]) == [("[8 May 2023] Anna: I adopted a cat in Oslo.", ("D1:3",))]


@pytest.mark.parametrize(
    ("text", "stored", "cosine", "action"),
    [
        ("Anna has a cat", "Anna has a cat and a dog", 0.5, "exclude"),
        ("Anna has a cat and a dog", "Anna has a cat", 0.95, "merge"),
        ("Anna has a cat and a dog", "Anna has a cat", 0.5, "add"),
        ("Anna has a cat", "Ben has a cat", 0.99, "add"),
    ],
)
def test_an_insight_is_judged_by_its_words_and_its_nearness(
    text: str, stored: str, cosine: float, action: str
) -> None:
    verdict = agent().judge(text, [(Insight(id="1", text=stored), cosine)])
    assert verdict.action == action
    assert verdict.merge_with == ("1" if action == "merge" else None)


def test_a_question_becomes_a_description() -> None:
    assert agent().describe("Can you tell me when Caroline went to the support group?") == (
        "Caroline went to the support group"
    )
    assert agent().describe("What?") == "What?"
