"""The package's own format: what the documentation shows is read, and what is written is read back."""

from __future__ import annotations

import inspect
import json
import textwrap
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlmf.data.jsonl
from mlmf.data.jsonl import dump_jsonl, load_jsonl
from mlmf.data.locco import load_locco, load_probes, with_probes
from mlmf.types import Conversation, Question, Session, Turn


def test_the_documented_example(tmp_path: Path) -> None:
    documentation = inspect.getdoc(mlmf.data.jsonl) or ""
    example = textwrap.dedent(documentation.split("reads::")[1].split("\n* ")[0])
    path = tmp_path / "example.jsonl"
    path.write_text(json.dumps(json.loads(example)))
    (conversation,) = load_jsonl(path)
    assert conversation == Conversation(
        id="anna-and-ben",
        sessions=(
            Session(
                0,
                datetime(2023, 5, 8, 13, 56),
                (Turn("t1", "Anna", "I adopted a cat!", "a grey kitten"), Turn("S0:1", "Ben", "What is it called?")),
            ),
        ),
        questions=(
            Question(
                "anna-and-ben",
                0,
                "What did Anna adopt?",
                "a cat",
                category=4,
                evidence=("t1",),
                evidence_status="ok",
                id="anna-and-ben#0",
                session=0,
            ),
            Question(
                "anna-and-ben", 1, "What is Ben's dog called?", None, is_trap=True, lure="Rex", id="anna-and-ben#1"
            ),
        ),
        speakers=("Anna", "Ben"),
    )


def test_paths_may_be_strings(tmp_path: Path) -> None:
    conversations = load_locco()[:2]
    path = str(tmp_path / "mine.jsonl")
    dump_jsonl(conversations, path)
    assert [one.sessions for one in load_jsonl(path)] == [one.sessions for one in conversations]


def test_locco_survives_the_round_trip(tmp_path: Path) -> None:
    conversations = with_probes(load_locco(), load_probes("test"))
    dump_jsonl(conversations, tmp_path / "locco.jsonl")
    assert load_jsonl(tmp_path / "locco.jsonl") == conversations


def test_a_question_without_an_id_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    said = (Session(0, None, (Turn("t1", "Anna", "I adopted a cat!"),)),)
    dump_jsonl([Conversation("anna", said, (Question("anna", 0, "What?", "a cat"),))], tmp_path / "anna.jsonl")
    assert [one.id for one in load_jsonl(tmp_path / "anna.jsonl")[0].questions] == ["anna#0"]


def test_locomo_survives_but_for_what_the_format_cannot_say(tmp_path: Path, locomo: dict[str, Conversation]) -> None:
    dump_jsonl(locomo.values(), tmp_path / "locomo.jsonl")
    for read, written in zip(load_jsonl(tmp_path / "locomo.jsonl"), locomo.values(), strict=True):
        assert (read.id, read.sessions, set(read.speakers)) == (written.id, written.sessions, set(written.speakers))
        assert read.questions == tuple(
            replace(question, evidence_status="ok" if question.evidence else "none") for question in written.questions
        )


def test_byte_order_mark_windows_line_ends_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    line = json.dumps({"id": "a", "sessions": [{"turns": [{"speaker": "A", "text": "é\u2028"}]}]}, ensure_ascii=False)
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{line}\r\n\r\n".encode())
    (conversation,) = load_jsonl(path)
    assert conversation.turns[0].text == "é\u2028"


VISIBLE = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(VISIBLE, st.text(st.characters(codec="utf-8"))), min_size=1), min_size=1))
def test_any_words_survive_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, said: list[list[tuple[str, str]]]
) -> None:
    sessions = tuple(
        Session(i, None, tuple(Turn(f"S{i}:{j}", speaker, text) for j, (speaker, text) in enumerate(turns)))
        for i, turns in enumerate(said)
    )
    speakers = tuple(dict.fromkeys(speaker for turns in said for speaker, _ in turns))
    conversation = Conversation("any", sessions, speakers=speakers)
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    dump_jsonl([conversation], path)
    assert load_jsonl(path) == (conversation,)
