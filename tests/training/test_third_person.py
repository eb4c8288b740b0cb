from __future__ import annotations

import re

import pytest

from mlmf.data.tasks import load_task
from mlmf.training.third_person import third_person, with_names
from mlmf.types import Conversation, Question, Session, Turn


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("When did I start?", "When did Anna start?"),
        ("Where did Leo and I meet my coach?", "Where did Leo and Anna meet her coach?"),
        ("What am I afraid of?", "What is Anna afraid of?"),
        ("Which mug do I say is mine?", "Which mug does Anna say is hers?"),
        ("What does my sister call me?", "What does Anna's sister call her?"),
        ("I'm sure that I have two cats", "Anna is sure that she has two cats"),
        ("Which imam did Ivy meet?", "Which imam did Ivy meet?"),
        ("What did I build by myself?", "What did Anna build by herself?"),
    ],
)
def test_who_asks_is_told_of(said: str, told: str) -> None:
    assert third_person(said, "Anna", "she") == told


def test_an_answer_is_told_with_pronouns_alone() -> None:
    assert third_person("my old guitar", "he", "he") == "his old guitar"


def test_every_training_question_can_be_told_of_somebody() -> None:
    for conversation in load_task("locco", split="train").conversations:
        copy = with_names(conversation, seed=0)
        assert copy is not None and copy.id == conversation.id
        name = copy.speakers[0]
        assert name != "User" and copy.speakers[1:] == conversation.speakers[1:]
        assert not any(re.search(rf"\b{name}\b", turn.text) for turn in conversation.turns)
        for before, after in zip(conversation.questions, copy.questions, strict=True):
            assert (name in after.text) == (after.text != before.text)  # some are asked without "I"
            assert not re.search(r"\b(I|my|me)\b", after.text)
            assert (after.evidence, after.session, after.is_trap) == (before.evidence, before.session, before.is_trap)
        said = [[turn.text for turn in session.turns] for session in conversation.sessions]
        assert [[turn.text for turn in session.turns] for session in copy.sessions] == said


def test_people_with_names_stay_as_they_are_and_two_roles_get_two_names() -> None:
    def talk(one: str, other: str) -> Conversation:
        turns = (Turn("a", one, "hello Alice"), Turn("b", other, "hi"))
        return Conversation("x", (Session(0, None, turns),), (Question("x", 0, "Who am I?", "me"),), (one, other))

    assert with_names(talk("Anna", "Ben"), 0) is None
    copy = with_names(talk("Speaker 1", "Speaker 2"), 0)
    assert copy is not None and len(set(copy.speakers)) == 2 and "Alice" not in copy.speakers
    assert copy.questions == ()  # nobody knows which of the two would be "I"
    assert copy == with_names(talk("Speaker 1", "Speaker 2"), 0)
