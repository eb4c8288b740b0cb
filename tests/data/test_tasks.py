"""A task's name to its conversations and their provenance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlmf.data.jsonl import dump_jsonl
from mlmf.data.locco import FILES, LOCCO_SHA256, load_locco
from mlmf.data.locomo import LOCOMO_SHA256
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.paths import sha256_of

PROBE = {
    "id": "mine-1",
    "user": 0,
    "kind": "fact",
    "session": 0,
    "question": "Where did I dance?",
    "answer": "at the Riverside Summer Festival",
    "evidence": "Riverside Summer Festival",
}


def own_probes(folder: Path, *records: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_locco_by_split() -> None:
    test, train = load_task("locco"), load_task("locco", split="train")
    assert (len(test.conversations), len(train.conversations)) == (16, 40)
    assert all(len(conversation.questions) == 22 for conversation in test.conversations)
    assert (test.source, test.sha256, test.is_pinned) == ("LOCCO.json", LOCCO_SHA256["standard"], True)
    assert test.probes_source == "probes.test.jsonl"


def test_probes_of_ones_own_replace_the_questions_and_unpin(tmp_path: Path) -> None:
    path = own_probes(
        tmp_path, PROBE, {**PROBE, "id": "mine-2", "user": 3, "kind": "trap", "answer": None, "evidence": None}
    )
    data = load_task("locco", probes=str(path))
    assert [conversation.id for conversation in data.conversations] == ["0", "3"]
    question = data.conversations[0].questions[0]
    assert (question.evidence, question.category, question.answer) == (("S0:0",), 1, PROBE["answer"])
    assert data.conversations[1].questions[0].is_trap
    assert not data.is_pinned and data.sha256 == LOCCO_SHA256["standard"]
    assert (data.probes_source, data.probes_sha256) == ("mine.jsonl", sha256_of(path))


def test_locco_l_has_no_questions_of_its_own(tmp_path: Path) -> None:
    data = load_task("locco_l")
    assert len(data.conversations) == 20 and data.is_pinned
    assert not any(conversation.questions for conversation in data.conversations)
    said = load_locco("long")[0].sessions[0].turns[0].text
    asked = load_task("locco_l", probes=own_probes(tmp_path, {**PROBE, "evidence": said}))
    assert [conversation.id for conversation in asked.conversations] == ["0"]


def test_other_dialogues_in_loccos_layout(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps([[["2023-05-08", json.dumps({"1": {"User": "I dance", "Chatbot": "Oh"}})]]]))
    with pytest.raises(UserError, match="--allow_unknown_data"):
        load_task("locco", data_file=path)
    data = load_task("locco", data_file=path, allow_unknown_data=True)
    assert (data.source, data.is_pinned, data.conversations[0].questions) == ("own.json", False, ())
    probes = own_probes(tmp_path, {**PROBE, "evidence": "dance"})
    assert load_task("locco", data_file=path, probes=probes, allow_unknown_data=True).conversations[0].questions


def test_locomo(locomo_file: Path, tmp_path: Path) -> None:
    data = load_task("locomo")
    assert (len(data.conversations), data.source, data.sha256) == (10, "locomo10.json", LOCOMO_SHA256)
    assert data.is_pinned
    part = tmp_path / "part.json"
    part.write_text(json.dumps(json.loads(locomo_file.read_text())[:1]))
    assert not load_task("locomo", data_file=part, allow_unknown_data=True).is_pinned
    with pytest.raises(UserError, match="not the official"):
        load_task("locomo", data_file=part)


def test_msc(msc_file: Path) -> None:
    assert len(load_task("msc").conversations) == 1000
    one_file = load_task("msc", data_file=msc_file)
    assert (one_file.source, one_file.sha256) == (msc_file.name, sha256_of(msc_file))
    assert not one_file.is_pinned


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    dump_jsonl(load_locco()[:2], path)
    data = load_task("jsonl", data_file=path)
    assert (len(data.conversations), data.source, data.is_pinned) == (2, "own.jsonl", False)


def test_arguments_that_a_task_would_ignore_are_refused(tmp_path: Path) -> None:
    probes = FILES / "probes.test.jsonl"
    with pytest.raises(UserError, match=r"unknown task 'loco'\. Did you mean"):
        load_task("loco")
    with pytest.raises(UserError, match="probes: are questions about LOCCO users; task 'locomo'"):
        load_task("locomo", probes=probes)
    with pytest.raises(UserError, match="split: 'test' has no meaning here"):
        load_task("locomo", split="test")
    with pytest.raises(UserError, match="split: 'test' has no meaning here"):
        load_task("locco", probes=probes, split="test")
    with pytest.raises(UserError, match=r"unknown split of locco 'valid'\. Available: test, train"):
        load_task("locco", split="valid")
    with pytest.raises(UserError, match="data_file: task 'jsonl' needs one"):
        load_task("jsonl")
