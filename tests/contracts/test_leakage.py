"""Contract 8: no system sees gold, category, evidence, ``query``, summaries, later sessions or another conversation.

Two proofs for every system of the table, through the real runner. Records that raise when anything forbidden is touched
while a system is at work; and worlds that differ only in what is forbidden, in which every system must do the same to the
last token. ``oracle_evidence`` may see the evidence, and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mlmf import MLMFConfig, MLMFModel
from mlmf.config.evaluation import EvalConfig
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.runner import Runner
from mlmf.evaluation.samples import Sample, SampleFile, read_samples
from mlmf.systems.build import SYSTEMS, Shared, build_system
from mlmf.types import Answer, Conversation, Question, Session, Turn
from tests.evaluation.conftest import SpySystem
from tests.retrieval.tiny_encoder import save_tiny_encoder

ALLOWED = {"text", "date", "query"}
GOLD = {field.name for field in dataclasses.fields(Question)} - ALLOWED


class Leak(AssertionError):
    """A system touched what it must not see."""


class Wall:
    """Knows whether a system is at work, and which sessions it has been shown."""

    def __init__(self) -> None:
        self.is_inside = False
        self.shown: set[int] = set()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` with the guards up; a session becomes visible when it is handed over, and none is after a reset."""

        def guarded(*arguments: Any) -> Any:
            if call.__name__ == "reset":
                self.shown.clear()
            self.shown.update(id(argument) for argument in arguments if isinstance(argument, Session))
            self.is_inside = True
            try:
                return call(*arguments)
            finally:
                self.is_inside = False

        return guarded

    def guard(self, conversation: Conversation) -> Conversation:
        """The conversation, of records that raise."""
        wall = self

        class GuardedQuestion(Question):
            def __getattribute__(self, name: str) -> Any:
                if wall.is_inside and name in GOLD:
                    raise Leak(f"question.{name}")
                return object.__getattribute__(self, name)

        class GuardedSession(Session):
            def __getattribute__(self, name: str) -> Any:
                if wall.is_inside and id(self) not in wall.shown and not name.startswith("__"):
                    raise Leak(f"session.{name}")
                return object.__getattribute__(self, name)

        def fields(record: Any) -> dict[str, Any]:
            return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}

        return dataclasses.replace(
            conversation,
            sessions=tuple(GuardedSession(**fields(session)) for session in conversation.sessions),
            questions=tuple(GuardedQuestion(**fields(question)) for question in conversation.questions),
        )


def conversation(name: str) -> Conversation:
    """Three sessions; questions are asked after the first, after the second and at the end."""
    sessions = tuple(
        Session(
            index, datetime(2023, 5, 8 + index), tuple(Turn(f"D{index}:{t}", "Ann", f"{name} {w}") for t, w in words)
        )
        for index, words in enumerate([[(1, "has a cat"), (2, "sings")], [(1, "has a dog")], [(1, "left in May")]])
    )
    questions = tuple(
        Question(name, i, f"What pet has {name}?", "a cat", 1, False, "a dog", ("D0:1",), "ok", f"{name}#{i}", date, 0)
        for i, date in enumerate([datetime(2023, 5, 8), datetime(2023, 5, 9), None])
    )
    return Conversation(name, sessions, questions, ("Ann",))


def run_behind_the_wall(system: Any, tmp_path: Path) -> list[Sample]:
    wall = Wall()
    conversations = [wall.guard(conversation(name)) for name in ("Anna", "Bertha")]
    for method in ("reset", "observe", "answer", "answer_with_gold_evidence"):
        if hasattr(system, method):
            setattr(system, method, wall.around(getattr(system, method)))
    return Runner(2, len).run(system, conversations, SampleFile(tmp_path, {}))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    config = MLMFConfig(base_model="tiny-random", c_s=8, node_tokens=8)
    MLMFModel.from_base("tiny-random", config).save_pretrained(folder / "saved")
    save_tiny_encoder(folder / "bert")
    turns = [{"speaker": "Eve", "text": "Hello"}]
    training = {"id": "eve", "sessions": [{"turns": turns}], "questions": [{"question": "Who?", "answer": "Eve"}]}
    (folder / "train.jsonl").write_text(json.dumps(training) + "\n")
    return {
        "base_model": "tiny-random",
        "checkpoint": str(folder / "saved"),
        "encoder": str(folder / "bert"),
        "training_task": "jsonl",
        "training_file": str(folder / "train.jsonl"),
        "max_new_tokens": 6,
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_system_touches_what_is_forbidden(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    shared = Shared(EvalConfig(system=name, tasks="locco", **settings))
    samples = run_behind_the_wall(build_system(name, shared), tmp_path)
    assert [(sample.status, sample.error) for sample in samples] == [("ok", None)] * 6
    for asked_after_the_first_session in (samples[0], samples[3]):
        assert set(asked_after_the_first_session.recalled) <= {"D0:1", "D0:2"}
    assert not any("Anna" in line for sample in samples[3:] for line in sample.recalled_lines)


@pytest.mark.parametrize("field", ["answer", "category", "evidence", "later session", "other conversation"])
def test_the_wall_stops_a_system_that_cheats(field: str, tmp_path: Path) -> None:
    wall_sees: list[Conversation] = []

    class Cheat(SpySystem):
        def answer(self, queries):  # type: ignore[no-untyped-def]
            anna, bertha = wall_sees
            if field == "later session":
                anna.sessions[2].turns  # noqa: B018
            elif field == "other conversation":
                bertha.sessions[0].turns  # noqa: B018
            else:
                getattr(anna.questions[0], field)
            return [Answer("a cat") for _ in queries]

    cheat = Cheat()
    wall = Wall()
    wall_sees += [wall.guard(conversation(name)) for name in ("Anna", "Bertha")]
    for method in ("reset", "observe", "answer"):
        setattr(cheat, method, wall.around(getattr(cheat, method)))
    samples = Runner(1, len).run(cheat, wall_sees[:1], SampleFile(tmp_path, {}))
    assert samples[0].status == "error" and "Leak" in (samples[0].error or "")


def locomo_file(path: Path, *, gold: str, evidence: str, other: str) -> Path:
    """A file in LoCoMo's layout in which everything a system must not see says ``gold``, ``evidence`` or ``other``."""

    def turn(session: int, number: int, text: str) -> dict[str, Any]:
        extra = {"query": gold, "img_url": [gold], "re-download": gold, "blip_caption": "a red bicycle"}
        return {"speaker": "Ann", "dia_id": f"D{session}:{number}", "text": text, **extra}

    def sample(name: str, texts: list[str]) -> dict[str, Any]:
        talk = {f"session_{i}": [turn(i, 1, text), turn(i, 2, "Nice")] for i, text in enumerate(texts, start=1)}
        dates = {f"session_{i}_date_time": f"1:56 pm on {7 + i} May, 2023" for i in range(1, len(texts) + 1)}
        qa = [
            {"question": "Who sings?", "answer": gold, "category": 1 + len(gold) % 4, "evidence": [evidence]},
            {"question": "Who left?", "category": 5, "adversarial_answer": gold, "evidence": [evidence]},
        ]
        summaries = {"session_summary": {"session_1_summary": gold}, "event_summary": {"events_session_1": gold}}
        return {
            "sample_id": name,
            "conversation": {"speaker_a": "Ann", "speaker_b": "Ben", **talk, **dates},
            "qa": qa,
            "observation": {"session_1_observation": gold},
            **summaries,
        }

    samples = [sample("ann", ["Ben sings", "Ann left in May"]), sample("zoe", [other, other])]
    path.write_text(json.dumps(samples))
    return path


def test_what_is_forbidden_changes_nothing_that_a_system_does(settings: dict[str, Any], tmp_path: Path) -> None:
    worlds = {
        "plain": {"gold": "Ben", "evidence": "D1:1", "other": "It rained"},
        "other gold": {"gold": "nobody at all", "evidence": "D1:1", "other": "Ann and Ben sing and left"},
        "other evidence": {"gold": "nobody at all", "evidence": "D2:1", "other": "Ann and Ben sing and left"},
    }
    done: dict[str, dict[str, list[Any]]] = {}
    for world, content in worlds.items():
        out = tmp_path / world
        file = locomo_file(tmp_path / f"{world}.json", **content)
        run_evaluation(
            EvalConfig(
                system=list(SYSTEMS), tasks="locomo", data_file=str(file), allow_unknown_data=True,
                output_dir=str(out), max_error_share=0, **settings,
            )
        )  # fmt: skip
        done[world] = {
            name: [
                (s.status, s.prediction, s.recalled, s.recalled_lines, s.gates, s.tokens_read, s.tokens_written)
                for s in read_samples(out / "locomo" / name / "seed_0" / "samples.jsonl")
                if s.conversation_id == "ann"
            ]
            for name in SYSTEMS
        }
    for name in SYSTEMS:
        assert [answer[0] for answer in done["plain"][name]] == ["ok", "ok"]
        assert done["other gold"][name] == done["plain"][name], name
        if name != "oracle_evidence":
            assert done["other evidence"][name] == done["plain"][name], name
    assert [answer[2] for answer in done["plain"]["oracle_evidence"]] == [("D1:1",)] * 2
    assert [answer[2] for answer in done["other evidence"]["oracle_evidence"]] == [("D2:1",)] * 2
