"""LoCoMo: every known quirk of the released file, and other people's files in its layout."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mlmf.data.locomo import CATEGORY_NAMES, CONTESTED_TRAPS, LOCOMO_SHA256, load_locomo, repair_evidence
from mlmf.errors import UserError
from mlmf.types import Conversation, Question


def every_question(locomo: dict[str, Conversation]) -> list[Question]:
    return [question for conversation in locomo.values() for question in conversation.questions]


def test_size_of_the_release(locomo: dict[str, Conversation]) -> None:
    assert len(locomo) == 10
    assert sum(len(conversation.sessions) for conversation in locomo.values()) == 272
    assert sum(len(conversation.turns) for conversation in locomo.values()) == 5882
    assert len(locomo["conv-42"].questions) == 260  # the fork that circulates has one fewer here
    assert locomo["conv-42"].speakers == ("Joanna", "Nate")


def test_categories_have_the_counts_of_the_paper(locomo: dict[str, Conversation]) -> None:
    counts = Counter(CATEGORY_NAMES[question.category or 0] for question in every_question(locomo))
    assert counts == {"single-hop": 841, "multi-hop": 282, "temporal": 321, "open-domain": 96, "adversarial": 446}


def test_questions_are_keyed_by_position(locomo: dict[str, Conversation]) -> None:
    for conversation in locomo.values():
        assert [question.index for question in conversation.questions] == list(range(len(conversation.questions)))
        assert {question.conversation_id for question in conversation.questions} == {conversation.id}
    ids = [question.id for question in every_question(locomo)]
    assert len(set(ids)) == len(ids) and ids[0] == "conv-26#0"
    repeated = locomo["conv-48"].questions
    assert (repeated[16].text, repeated[16].answer) == (repeated[89].text, repeated[89].answer)


def test_sessions_are_in_numeric_and_chronological_order(locomo: dict[str, Conversation]) -> None:
    for conversation in locomo.values():
        assert [session.index for session in conversation.sessions] == list(range(len(conversation.sessions)))
        assert [session.turns[0].id for session in conversation.sessions] == [
            f"D{number}:1" for number in range(1, len(conversation.sessions) + 1)
        ]
        dates = [session.date for session in conversation.sessions if session.date]
        assert len(dates) == len(conversation.sessions)
        assert dates == sorted(dates)


def test_all_dates_agree_with_strptime(locomo: dict[str, Conversation], locomo_file: Path) -> None:
    for sample in json.loads(locomo_file.read_text()):
        for session in locomo[sample["sample_id"]].sessions:
            written = sample["conversation"][f"session_{session.index + 1}_date_time"]
            assert session.date == datetime.strptime(written, "%I:%M %p on %d %B, %Y")


def test_dates_without_turns_are_left_aside(locomo: dict[str, Conversation]) -> None:
    assert len(locomo["conv-26"].sessions) == 19


def test_integer_answers_become_text(locomo: dict[str, Conversation]) -> None:
    answers = {index: locomo["conv-26"].questions[index].answer for index in (1, 26, 49, 72, 40, 75)}
    assert answers == {1: "2022", 26: "2022", 49: "2022", 72: "2022", 40: "2", 75: "3"}


def test_adversarial_questions(locomo: dict[str, Conversation]) -> None:
    traps = [question for question in every_question(locomo) if question.is_trap]
    assert {question.category for question in traps} == {5} and len(traps) == 446
    assert all(question.lure for question in traps)
    assert {question.id: question.answer for question in traps if question.answer is not None} == {
        "conv-26#167": "No",
        "conv-26#178": "No",
    }
    assert all(question.answer for question in every_question(locomo) if not question.is_trap)


def test_contested_traps_are_answered_in_their_conversation(locomo: dict[str, Conversation]) -> None:
    found = {question.id: question for one in locomo.values() for question in one.questions}
    contested = [found[name] for name in CONTESTED_TRAPS]
    assert all(question.is_trap for question in contested)
    assert [question.answer for question in contested] == [None, "No", "No", None]
    twin = found["conv-30#61"]
    assert (twin.text, twin.answer, twin.is_trap) == (contested[3].text, contested[3].lure, False)


def test_evidence_statuses(locomo: dict[str, Conversation]) -> None:
    questions = every_question(locomo)
    by_status = {
        status: {question.id for question in questions if question.evidence_status == status}
        for status in ("repaired", "partly_unresolved", "unresolved", "none")
    }
    assert by_status == {
        "repaired": {"conv-26#37", "conv-43#18", "conv-49#31", "conv-49#38", "conv-49#46", "conv-50#69"},
        "partly_unresolved": {"conv-42#58", "conv-42#88", "conv-47#38"},  # `D10:19`, `D`, `D4:36`
        "unresolved": set(),
        "none": {"conv-26#30", "conv-26#46", "conv-50#39", "conv-50#42"},
    }
    assert sum(len(question.evidence) for question in questions) == 2820
    assert len(set(locomo["conv-50"].questions[5].evidence)) == len(locomo["conv-50"].questions[5].evidence)
    for conversation in locomo.values():
        turns = {turn.id for turn in conversation.turns}
        assert all(set(question.evidence) <= turns for question in conversation.questions)


def test_the_session_of_the_evidence(locomo: dict[str, Conversation]) -> None:
    multi_hop = [question for question in every_question(locomo) if question.category == 1]
    single_hop = [question for question in every_question(locomo) if question.category == 4]
    assert sum(question.session is None for question in multi_hop) == 269
    assert sum(question.session is not None for question in single_hop) == 840
    first = locomo["conv-26"].questions[0]
    assert (first.evidence, first.session) == (("D1:3",), 0)


def test_captions_are_kept_and_the_search_query_never_is(locomo: dict[str, Conversation], locomo_file: Path) -> None:
    turns = [turn for conversation in locomo.values() for turn in conversation.turns]
    assert sum(turn.caption is not None for turn in turns) == 1226
    raw = [
        turn
        for sample in json.loads(locomo_file.read_text())
        for key, value in sample["conversation"].items()
        if isinstance(value, list)
        for turn in value
    ]
    assert sum("query" in turn for turn in raw) == 888
    for read, written in zip(turns, raw, strict=True):
        assert (read.text, read.caption) == (written["text"], written.get("blip_caption"))


def test_captions_can_be_left_out(locomo_file: Path) -> None:
    turns = [turn for conversation in load_locomo(locomo_file, captions=False) for turn in conversation.turns]
    assert len(turns) == 5882 and all(turn.caption is None and turn.content == turn.text for turn in turns)


def test_another_hash_is_refused_unless_allowed(tmp_path: Path, locomo_file: Path) -> None:
    samples = json.loads(locomo_file.read_text())
    del samples[3]["qa"][66]  # what the fork did
    fork = tmp_path / "fork.json"
    fork.write_text(json.dumps(samples))
    with pytest.raises(UserError, match="not the official LoCoMo release") as caught:
        load_locomo(fork)
    assert LOCOMO_SHA256 in str(caught.value) and "--allow_unknown_data" in str(caught.value)
    assert len(load_locomo(fork, allow_unknown_data=True)[3].questions) == 259


@pytest.mark.parametrize(
    ("raw", "evidence", "status"),
    [
        ([], (), "none"),
        (["D1:1", "D1:2"], ("D1:1", "D1:2"), "ok"),
        (["D1:2", "D1:2"], ("D1:2",), "ok"),
        (["D1:1; D1:2"], ("D1:1", "D1:2"), "repaired"),
        (["D1:1 D12:3"], ("D1:1", "D12:3"), "repaired"),
        (["D:12:3"], ("D12:3",), "repaired"),
        (["D01:02"], ("D1:2",), "repaired"),
        (["D1:1", "D"], ("D1:1",), "partly_unresolved"),
        (["D1:1, D1:9"], ("D1:1",), "partly_unresolved"),
        (["D"], (), "unresolved"),
        (["D9:9"], (), "unresolved"),
    ],
)
def test_repair_evidence(raw: list[str], evidence: tuple[str, ...], status: str) -> None:
    assert repair_evidence(raw, ["D1:1", "D1:2", "D12:3"]) == (evidence, status)


def test_a_file_of_ones_own_in_the_same_layout(tmp_path: Path) -> None:
    sample: dict[str, Any] = {
        "conversation": {
            "session_10": [{"speaker": "Ben", "text": "Ten."}],
            "session_10_date_time": "30.12.2023, 08:00:00",
            "session_9": [{"speaker": "Anna", "text": "Nine."}, {"speaker": "Ben", "text": "Yes, nine."}],
            "session_9_date_time": "29.12.2023, 22:42:04",
            "session_11_date_time": "31.12.2023, 08:00:00",
        },
        "qa": [{"question": "Which number?", "answer": 9.5, "evidence": "D9:2"}],
        "observation": "never read",
    }
    path = tmp_path / "own.json"
    path.write_text(json.dumps([sample, {"sample_id": "bare", "conversation": sample["conversation"]}]))
    own, bare = load_locomo(path, allow_unknown_data=True)
    assert (own.id, own.speakers) == ("conv-0", ("Anna", "Ben"))
    assert [session.date for session in own.sessions] == [datetime(2023, 12, 29, 22, 42, 4), datetime(2023, 12, 30, 8)]
    assert [turn.id for turn in own.turns] == ["D9:1", "D9:2", "D10:1"]
    question = own.questions[0]
    assert (question.answer, question.category, question.is_trap) == ("9.5", None, False)
    assert (question.evidence, question.evidence_status, question.session) == (("D9:2",), "ok", 0)
    assert bare.questions == ()
