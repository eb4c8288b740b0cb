"""Multi-Session Chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlmf.data.msc import load_msc, load_msc_file
from mlmf.errors import UserError


def test_earlier_dialogues_come_first(msc_file: Path) -> None:
    conversations = load_msc_file(msc_file)
    raw = [json.loads(line) for line in msc_file.read_text().splitlines()]
    assert len(conversations) == len(raw) == 500
    assert conversations[0].id == "valid_0/3"
    for conversation, record in zip(conversations, raw, strict=True):
        dialogs = [*(one["dialog"] for one in record["previous_dialogs"]), record["dialog"]]
        assert [[turn.text for turn in session.turns] for session in conversation.sessions] == [
            [turn["text"] for turn in dialog] for dialog in dialogs
        ]
        assert all(session.date is None for session in conversation.sessions)
        assert conversation.questions == ()


def test_position_tells_the_speaker_as_the_ids_do_where_they_are_whole(msc_file: Path) -> None:
    compared = 0
    for conversation, line in zip(load_msc_file(msc_file), msc_file.read_text().splitlines(), strict=True):
        for turn, written in zip(conversation.sessions[-1].turns, json.loads(line)["dialog"], strict=True):
            if written["id"].startswith("Speaker"):
                assert turn.speaker == written["id"]
                compared += 1
    assert compared == 2935 + 2902


def test_both_sessions_are_read_under_distinct_ids(msc_file: Path) -> None:
    both = load_msc("valid", (2, 3))
    assert len({conversation.id for conversation in both}) == len(both) == 1000
    assert [len(conversation.sessions) for conversation in both] == [2] * 500 + [3] * 500


def test_unknown_split_and_session() -> None:
    with pytest.raises(UserError, match=r"unknown MSC split 'validation'\. Did you mean 'valid'"):
        load_msc("validation")
    with pytest.raises(UserError, match="unknown MSC session '4'"):
        load_msc("valid", (4,))


def test_a_missing_split_says_where_to_get_it(msc_file: Path) -> None:
    with pytest.raises(UserError, match=r"msc/dialogue_session_2_train\.jsonl not found.*ParlAI"):
        load_msc("train")
