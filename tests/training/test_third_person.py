from __future__ import annotations

import re

import pytest

from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.training.third_person import NAMES, third_person, with_names
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


@pytest.mark.parametrize("other", ["Adam", "Wendy"])
def test_nobody_gets_the_name_of_somebody_else(other: str) -> None:
    turns = (Turn("a", "User", "I like tea"), Turn("b", other, "so do I"))
    asked = (Question("x", 0, "What did Ben give me?", "Clara's cup"),)
    for seed in range(200):
        copy = with_names(Conversation("x", (Session(0, None, turns),), asked, ("User", other)), seed)
        assert copy is not None and copy.speakers[0] not in {other, "Ben", "Clara"}


def test_where_every_name_is_taken_the_conversation_is_named() -> None:
    turns = (Turn("a", "User", " ".join(name for name, _ in NAMES)),)
    with pytest.raises(UserError, match="conversation x: 1 speakers want a name, and 0 of the 34 known"):
        with_names(Conversation("x", (Session(0, None, turns),), (), ("User",)), 0)


def test_what_one_said_is_asked_about_the_other_who_never_said_it() -> None:
    for conversation in load_task("locco", split="train").conversations[:8]:
        copy, plain = with_names(conversation, 0, swapped_share=0.5), with_names(conversation, 0)
        assert copy is not None and plain is not None and len(set(copy.speakers)) == 2
        one, other = copy.speakers
        assert (conversation.speakers[1], plain.speakers[1]) == ("Bot", "Bot") and other != "Bot"
        said = [[(turn.speaker == one, turn.text) for turn in session.turns] for session in copy.sessions]
        assert said == [[(turn.speaker == "User", turn.text) for turn in s.turns] for s in conversation.sessions]

        told, swapped = copy.questions[: len(conversation.questions)], copy.questions[len(conversation.questions) :]
        assert [question.answer for question in told] == [question.answer for question in plain.questions]
        about_one = {question.text: question for question in told if question.answer is not None}
        assert 4 <= len(swapped) <= 14
        for question in swapped:
            first = re.sub(rf"\b{other}\b", one, question.text)
            assert first != question.text and question.answer is None and question.is_trap
            # pronouns may differ
            alike = [q for text, q in about_one.items() if text.split()[:3] == first.split()[:3]]
            assert question.evidence in [q.evidence for q in alike]
        assert [question.index for question in copy.questions] == list(range(len(copy.questions)))


def test_people_with_names_of_their_own_and_two_roles_are_never_swapped() -> None:
    turns = (Turn("a", "Speaker 1", "hello"), Turn("b", "Speaker 2", "hi"))
    asked = (Question("x", 0, "Who am I?", "me"),)
    copy = with_names(Conversation("x", (Session(0, None, turns),), asked, ("Speaker 1", "Speaker 2")), 0, 1.0)
    assert copy is not None and copy.questions == ()
