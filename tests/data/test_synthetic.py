"""Recall dialogues: what is asked can be answered from what was told, by the newest telling, and by nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mlmf.data.jsonl import dump_jsonl, load_jsonl
from mlmf.data.synthetic import (
    ABOUT_THINGS,
    FACT,
    NEVER_TOLD,
    PERSONAL,
    UPDATE,
    RecallSpec,
    distance,
    recall_conversation,
    recall_conversations,
    recall_texts,
)
from mlmf.data.tasks import RECALL_SIZES, load_task
from mlmf.errors import UserError
from mlmf.types import Conversation, Question

SPEC = RecallSpec(sessions=12, update_share=0.4)
MANY = [recall_conversation(seed, SPEC) for seed in range(20)]


def tellings(conversation: Conversation, question: Question) -> list[tuple[str, str]]:
    """Turn id and value of every turn that answers a question, oldest first, by reading the text anew."""
    for attribute in (*PERSONAL, *ABOUT_THINGS):
        asked = re.fullmatch(re.escape(attribute.ask).replace(r"\{\}", "(.+)"), question.text)
        if asked:
            told = attribute.tell.format(asked[1], r"(\w+)")
            found = [(turn.id, re.fullmatch(rf"{told}( now)?\.", turn.text)) for turn in conversation.turns]
            return [(turn_id, match[1]) for turn_id, match in found if match]
    raise AssertionError(question.text)


def questions(category: int) -> list[tuple[Conversation, Question]]:
    return [(one, question) for one in MANY for question in one.questions if question.category == category]


def test_a_fact_is_told_in_exactly_the_turn_that_is_its_evidence() -> None:
    facts = questions(FACT)
    assert len(facts) > 100
    for conversation, question in facts:
        assert tellings(conversation, question) == [(question.evidence[0], question.answer)]
        assert question.lure is None and not question.is_trap


def test_an_update_is_answered_by_its_newest_telling_and_lured_by_the_one_before() -> None:
    updates = questions(UPDATE)
    assert len(updates) > 50
    for conversation, question in updates:
        told = tellings(conversation, question)
        assert len(told) > 1 and told[-1] == (question.evidence[0], question.answer)
        assert question.lure == told[-2][1] != question.answer
        sessions = [turn_id.split(":")[0] for turn_id, _ in told]
        assert len(set(sessions)) == len(sessions)  # an update comes in a later session
    assert any(len(tellings(*update)) > 2 for update in updates)


def test_what_was_never_told_cannot_be_answered() -> None:
    never = questions(NEVER_TOLD)
    assert len(never) == SPEC.never_told * len(MANY)
    for conversation, question in never:
        assert tellings(conversation, question) == []
        assert question.is_trap and question.answer is None and question.evidence == () and question.session is None
    text = {id(one): " ".join(turn.text for turn in one.turns) for one in MANY}
    subject = re.compile(r"(?:does|the|is the) (?:the )?(\w+) ")
    known = sum(subject.search(q.text + " ")[1] in text[id(one)] for one, q in never)  # type: ignore[index]
    assert known >= len(never) // 2  # otherwise an unknown name would give the trap away


def test_sessions_and_distance() -> None:
    for conversation, question in questions(FACT) + questions(UPDATE):
        session = next(s for s in conversation.sessions for turn in s.turns if turn.id in question.evidence)
        assert session.index == question.session
        assert distance(conversation, question) == SPEC.sessions - session.index
    for conversation in MANY:
        dates = [session.date for session in conversation.sessions]
        assert None not in dates and dates == sorted(dates)
        assert {turn.speaker for turn in conversation.turns} <= set(conversation.speakers)
        assert [question.index for question in conversation.questions] == list(range(len(conversation.questions)))
        assert len({question.text for question in conversation.questions}) == len(conversation.questions)


def test_updates_are_marked_as_often_as_wanted() -> None:
    def shares(marked: float) -> list[bool]:
        spec = replace(SPEC, marked_share=marked)
        made = [recall_conversation(seed, spec) for seed in range(5)]
        newest = {turn.id: turn.text for one in made for turn in one.turns}
        assert newest
        return [
            next(turn.text for turn in one.turns if turn.id == question.evidence[0]).endswith(" now.")
            for one in made
            for question in one.questions
            if question.category == UPDATE
        ]

    assert all(shares(1.0)) and not any(shares(0.0))
    assert 0.2 < sum(shares(0.5)) / len(shares(0.5)) < 0.8


def test_seeds_and_splits() -> None:
    assert recall_conversation(3, SPEC) == MANY[3] != recall_conversation(4, SPEC)
    train, test = recall_conversations("train", 3), recall_conversations("test", 3)
    assert not {one.sessions for one in train} & {one.sessions for one in test}


def test_the_words_of_the_task_are_known_beforehand() -> None:
    known = set(re.findall(r"\w+", " ".join(recall_texts())))
    for conversation in MANY:
        said = " ".join(f"{turn.speaker} {turn.text}" for turn in conversation.turns)
        asked = " ".join(f"{question.text} {question.answer or ''}" for question in conversation.questions)
        assert set(re.findall(r"\w+", f"{said} {asked}")) <= known


def test_they_survive_the_packages_own_format(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "recall.jsonl"
    dump_jsonl(MANY[:2], path)
    loaded = load_jsonl(path)
    assert [one.sessions for one in loaded] == [one.sessions for one in MANY[:2]]
    assert [one.questions for one in loaded] == [one.questions for one in MANY[:2]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sessions": 0}, "sessions must be at least 1, got 0"),
        ({"told": 0}, "told must be at least 1"),
        ({"sessions": 60}, "60 sessions with 2 facts each"),
    ],
)
def test_what_no_conversation_can_be_made_of_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RecallSpec(**changes)  # type: ignore[arg-type]


def test_task() -> None:
    data = load_task("recall")
    assert (len(data.conversations), data.source, data.is_pinned) == (RECALL_SIZES["test"], "recall test", True)
    assert {question.category for one in data.conversations for question in one.questions} == {1, 2, 3}
    with pytest.raises(UserError, match=r"unknown split of recall 'valid'\. Available: test, train"):
        load_task("recall", split="valid")
    with pytest.raises(UserError, match="'recall' makes its dialogues itself"):
        load_task("recall", data_file="mine.jsonl")
