"""Malformed files: one error each, which names file, record, field and value."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlmf.data.jsonl import load_jsonl
from mlmf.data.locco import load_locco, load_probes, with_probes
from mlmf.data.locomo import load_locomo
from mlmf.data.msc import load_msc_file
from mlmf.errors import UserError
from mlmf.types import Conversation

Change = Callable[[Any], None]

OWN: dict[str, Any] = {
    "id": "a",
    "sessions": [
        {"date": "2023-05-08", "turns": [{"speaker": "A", "text": "hello", "id": "t1"}]},
        {"date": "2023-05-09", "turns": [{"speaker": "A", "text": "again"}, {"speaker": "B", "text": "yes"}]},
    ],
    "questions": [{"question": "What?", "answer": "hello", "evidence": ["t1"]}],
}
LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "A",
            "speaker_b": "B",
            "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "hello"}],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [{"speaker": "B", "dia_id": "D2:1", "text": "yes"}],
            "session_2_date_time": "1:56 pm on 9 May, 2023",
        },
        "qa": [{"question": "What?", "answer": "hello", "evidence": ["D1:1"], "category": 4}],
    }
]
LOCCO: list[Any] = [
    [
        ["2023-05-08", '{"1": {"User": "I dance", "Chatbot": "Oh"}}'],
        ["2023-05-09", '{"1": {"User": "u", "Chatbot": "c"}}'],
    ]
]
MSC: dict[str, Any] = {
    "dialog": [{"text": "hi", "id": "Speaker 1"}],
    "previous_dialogs": [{"dialog": [{"text": "first"}]}],
    "metadata": {"initial_data_id": "valid_0"},
}
PROBE: dict[str, Any] = {
    "id": "0-00",
    "user": 0,
    "kind": "fact",
    "period": 1,
    "session": 0,
    "question": "Where did I dance?",
    "answer": "at the festival",
    "evidence": "Riverside Summer Festival",
}


@pytest.fixture(scope="module")
def dialogues() -> tuple[Conversation, ...]:
    return load_locco()


def put(*path: Any) -> Change:
    """Set the value at the end of ``path``: ``put("a", 0, "b", value)`` does ``record["a"][0]["b"] = value``."""
    *steps, last, value = path

    def change(record: Any) -> None:
        for step in steps:
            record = record[step]
        record[last] = value

    return change


def drop(*path: Any) -> Change:
    *steps, last = path

    def change(record: Any) -> None:
        for step in steps:
            record = record[step]
        del record[last]

    return change


def error_of(load: Callable[[Path], object], path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        load(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    return message


def changed(record: Any, change: Change) -> str:
    record = copy.deepcopy(record)
    change(record)
    return json.dumps(record)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (drop("id"), ["bad.jsonl:2: id: field missing"]),
        (put("id", ""), ["bad.jsonl:2: id: must not be empty, got ''"]),
        (put("id", 7), ["bad.jsonl:2: id: Input should be a valid string, got 7"]),
        (put("id", "good"), ["bad.jsonl:2: id: conversation id 'good' is already used at bad.jsonl:1"]),
        (put("sessions", []), ["bad.jsonl:2: sessions: must hold at least one session"]),
        (drop("sessions"), ["bad.jsonl:2: sessions: field missing"]),
        (put("sessions", 1, "turns", []), ["bad.jsonl:2: sessions[1].turns: must hold at least one turn"]),
        (drop("sessions", 1, "turns"), ["bad.jsonl:2: sessions[1].turns: field missing", "pydoc mlmf.data.jsonl"]),
        (drop("sessions", 1, "turns", 0, "text"), ["bad.jsonl:2: sessions[1].turns[0].text: field missing"]),
        (put("sessions", 1, "turns", 1, "text", 5), ["bad.jsonl:2: sessions[1].turns[1].text: ", "got 5"]),
        (put("sessions", 1, "turns", 1, "speaker", " "), ["sessions[1].turns[1].speaker: must not be empty"]),
        (put("sessions", 1, "turns", 1, "txt", "x"), ["bad.jsonl:2: sessions[1].turns[1].txt: unknown field"]),
        (put("sessions", 1, "turns", 1, "id", "t1"), ["sessions[1].turns[1].id: turn id 't1' is already used at"]),
        (put("sessions", 1, "turns", 1, "yes"), ['sessions[1].turns[1]: must be a JSON object, got "yes"']),
        (put("sessions", 1, "date", "soon"), ["sessions[1].date: 'soon' is not a date; write", "2023-05-08"]),
        (put("sessions", 1, "date", 20230509), ["sessions[1].date: ", "got 20230509"]),
        (put("sessions", 1, "date", "2022-01-01"), ["sessions[1].date: dated 2022-01-01", "time order"]),
        (put("questions", 0, "evidence", ["t9"]), ["questions[0].evidence: no turn", "'t9'"]),
        (put("questions", 0, "answer", None), ["questions[0].answer: null only where", '"trap": true']),
        (put("questions", 0, "answer", " "), ["questions[0].answer: must not be empty, got ' '"]),
        (drop("questions", 0, "answer"), ["bad.jsonl:2: questions[0].answer: field missing"]),
        (drop("questions", 0, "question"), ["bad.jsonl:2: questions[0].question: field missing"]),
        (put("questions", 0, "trap", "no"), ["questions[0].trap: ", 'got "no"']),
        (put("questions", 0, "session", 2), ["questions[0].session: must be 0 to 1, got 2"]),
    ],
)
def test_jsonl(tmp_path: Path, change: Change, parts: list[str]) -> None:
    good = json.dumps({**OWN, "id": "good"})
    message = error_of(load_jsonl, tmp_path / "bad.jsonl", f"{good}\n{changed(OWN, change)}\n")
    assert [part for part in parts if part not in message] == [], message


def test_further_faults_are_counted(tmp_path: Path) -> None:
    record = {"id": 1, "sessions": [{"turns": [{}]}]}
    assert "(and 2 more in this record)" in error_of(load_jsonl, tmp_path / "bad.jsonl", json.dumps(record))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (drop(0, "conversation"), ["bad.json: [0]: conversation: field missing"]),
        (put(0, "text"), ['bad.json: [0]: must be a JSON object, got "text"']),
        (put(0, "conversation", {"speaker_a": "A"}), ["bad.json: conv-1: conversation: has no session_1"]),
        (
            put(0, "conversation", "session_2", []),
            ["conv-1: conversation.session_2: must be a list with at least one"],
        ),
        (
            put(0, "conversation", "session_2", {"a": 1}),
            ["conv-1: conversation.session_2: must be a list", '{"a": 1}'],
        ),
        (drop(0, "conversation", "session_2", 0, "text"), ["conv-1: conversation.session_2[0].text: field missing"]),
        (put(0, "conversation", "session_2", 0, "speaker", None), ["conversation.session_2[0].speaker: ", "got null"]),
        (
            put(0, "conversation", "session_2", 0, "dia_id", "D1:1"),
            ["conversation.session_2: dia_id 'D1:1' is already"],
        ),
        (put(0, "conversation", "session_2_date_time", "later"), ["conversation.session_2_date_time: 'later' is not"]),
        (
            put(0, "conversation", "session_2_date_time", "7 May 2023"),
            ["conversation.session_2: dated 2023-05-07", "earlier than conversation.session_1"],
        ),
        (put(0, "qa", 0, "question", "lone \ud800"), ["bad.json: conv-1: qa[0].question: holds '\\ud800'"]),
        (drop(0, "qa", 0, "question"), ["bad.json: conv-1: qa[0].question: field missing"]),
        (drop(0, "qa", 0, "answer"), ["bad.json: conv-1: qa[0].answer: field missing; only category 5"]),
        (put(0, "qa", 0, "answer", ""), ["bad.json: conv-1: qa[0].answer: must not be empty, got ''"]),
        (put(0, "qa", 0, "answer", ["a"]), ["bad.json: conv-1: qa[0].answer: ", 'got ["a"]']),
        (put(0, "qa", 0, "answer", True), ["bad.json: conv-1: qa[0].answer: ", "got true"]),
        (put(0, "qa", 0, "category", 6), ["bad.json: conv-1: qa[0].category: must be 1 to 5, got 6"]),
        (put(0, "qa", 0, "category", "4"), ["bad.json: conv-1: qa[0].category: ", 'got "4"']),
        (put(0, "qa", 0, "evidence", [1]), ["bad.json: conv-1: qa[0].evidence[0]: ", "got 1"]),
    ],
)
def test_locomo(tmp_path: Path, change: Change, parts: list[str]) -> None:
    def load(path: Path) -> object:
        return load_locomo(path, allow_unknown_data=True)

    message = error_of(load, tmp_path / "bad.json", changed(LOCOMO, change))
    assert [part for part in parts if part not in message] == [], message


def test_locomo_samples_need_their_own_ids(tmp_path: Path) -> None:
    message = error_of(
        lambda path: load_locomo(path, allow_unknown_data=True), tmp_path / "b.json", json.dumps(LOCOMO * 2)
    )
    assert "b.json: [1].sample_id: sample_id 'conv-1' is already used at b.json: [0].sample_id" in message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (put(0, []), ["bad.json: user 0: must be a list with at least one dialogue, got []"]),
        (put(0, 1, "text"), ["bad.json: user 0: [1]: must be [date, dialogue as a JSON string]"]),
        (put(0, 1, 0, "soon"), ["bad.json: user 0: [1].date: 'soon' is not a date"]),
        (put(0, 1, 0, "2022-05-09"), ["bad.json: user 0: [1]: dated 2022-05-09", "time order"]),
        (put(0, 1, 1, "{"), ["bad.json: user 0: [1].rounds: not valid JSON"]),
        (put(0, 1, 1, "{}"), ["bad.json: user 0: [1].rounds: must be"]),
        (put(0, 1, 1, '{"one": {}}'), ["bad.json: user 0: [1].rounds: must be"]),
        (put(0, 1, 1, '{"2": {"User": "u"}}'), ["bad.json: user 0: [1].rounds.2.Chatbot: field missing"]),
    ],
)
def test_locco(tmp_path: Path, change: Change, parts: list[str]) -> None:
    message = error_of(lambda path: load_locco(path=path), tmp_path / "bad.json", changed(LOCCO, change))
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (drop("question"), ["bad.jsonl:2: question: field missing"]),
        (drop("id"), ["bad.jsonl:2: id: field missing"]),
        (put("kind", "facts"), ["bad.jsonl:2: kind: ", "'fact' or 'trap'", 'got "facts"']),
        (put("user", "0"), ["bad.jsonl:2: user: ", 'got "0"']),
        (put("user", 44), ["bad.jsonl:2: user: LOCCO has no user 44; users are 0 to 104 without 44"]),
        (put("session", 28), ["bad.jsonl:2: session: user 0 has sessions 0 to 27, got 28"]),
        (put("session", -1), ["bad.jsonl:2: session: user 0 has sessions 0 to 27, got -1"]),
        (put("period", 2), ["bad.jsonl:2: period: session 0 is in period 1, got 2"]),
        (
            put("evidence", "Riverside summer"),
            ["bad.jsonl:2: evidence: ", '"Riverside summer"', "user 0", "session 0"],
        ),
        (put("evidence", "That sounds amazing!"), ["bad.jsonl:2: evidence: "]),
        (put("evidence", ""), ["bad.jsonl:2: evidence: must not be empty"]),
        (drop("evidence"), ["bad.jsonl:2: evidence: field missing; a probe of kind 'fact' needs it"]),
        (drop("answer"), ["bad.jsonl:2: answer: field missing; a probe of kind 'fact' needs it"]),
        (put("kind", "trap"), ["bad.jsonl:2: answer: a trap has none, got 'at the festival'"]),
        (put("id", "good"), ["bad.jsonl:2: probe id 'good' is already used at bad.jsonl:1"]),
        (put("awnser", "x"), ["bad.jsonl:2: awnser: unknown field"]),
    ],
)
def test_probes(tmp_path: Path, dialogues: tuple[Conversation, ...], change: Change, parts: list[str]) -> None:
    good = json.dumps({**PROBE, "id": "good"})
    message = error_of(
        lambda path: with_probes(dialogues, load_probes(path)),
        tmp_path / "bad.jsonl",
        f"{good}\n{changed(PROBE, change)}",
    )
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (drop("metadata"), ["bad.jsonl:1: metadata: field missing"]),
        (put("dialog", []), ["bad.jsonl:1: dialog: must hold at least one turn"]),
        (
            put("previous_dialogs", 0, "dialog", []),
            ["bad.jsonl:1: previous_dialogs[0].dialog: must hold at least one"],
        ),
        (drop("previous_dialogs", 0, "dialog", 0, "text"), ["bad.jsonl:1: previous_dialogs[0].dialog[0].text: field"]),
    ],
)
def test_msc(tmp_path: Path, change: Change, parts: list[str]) -> None:
    message = error_of(load_msc_file, tmp_path / "bad.jsonl", changed(MSC, change))
    assert [part for part in parts if part not in message] == [], message
