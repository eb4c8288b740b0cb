"""Names become systems, and what is missing is said before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mlmf.config.evaluation import EvalConfig
from mlmf.config.llm import ChatSettings
from mlmf.config.model import MemorySettings, MLMFConfig
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.systems.build import SYSTEMS, Shared, build_system, check_systems, system_settings
from mlmf.systems.mlmf import MLMFSystem
from mlmf.systems.text import LineKeeper
from mlmf.types import Query, Session, Turn
from tests.systems.doubles import WordEncoder


def test_every_text_system_answers_by_the_same_model_budget_and_decoding() -> None:
    config = EvalConfig(base_model="tiny-random", window_tokens=7, max_new_tokens=3)
    shared = Shared(config)
    shared.encoder = WordEncoder("cat")  # type: ignore[assignment]
    systems = [build_system(name, shared) for name in SYSTEMS if name != "mlmf"]
    answering = {id(system.answering) for system in systems if isinstance(system, LineKeeper)}
    assert len(answering) == 1
    assert (shared.answering.budget, shared.answering.max_new_tokens) == (7, 3)


def test_every_system_answers_to_its_own_name() -> None:
    shared = Shared(EvalConfig(base_model="tiny-random"))
    shared.encoder = WordEncoder("cat")  # type: ignore[assignment]
    names = [name for name in SYSTEMS if name != "mlmf"]
    assert [build_system(name, shared).name for name in names] == names


def test_settings_hold_what_may_change_an_answer_and_nothing_else() -> None:
    config = EvalConfig(window_tokens=9, dense_weight=0.3, batch_size=3)
    assert system_settings("no_memory", config) == {
        "answer_model": "base",
        "base_model": "smollm2-135m",
        "chat": False,
    }
    hybrid = system_settings("hybrid", config)
    assert (hybrid["window_tokens"], hybrid["dense_weight"], hybrid["encoder"]) == (9, 0.3, "all-minilm-l6-v2")
    assert "dense_weight" not in system_settings("dense", config)
    assert system_settings("always_abstain", config) == {}
    fine_tuned = EvalConfig(answer_model="checkpoint", checkpoint="there")
    assert system_settings("bm25", fine_tuned)["base_model"] is None
    served = EvalConfig(
        answer_model="server", llm=ChatSettings(model="m", base_url="http://me:secret@host/v1", timeout=9)
    )
    assert system_settings("no_memory", served) == {
        "answer_model": "server",
        "base_model": None,
        "chat": None,
        "llm": {"model": "m", "server": "http://host/v1", "context_window": 8192, "tokenizer": None},
    }


def test_an_unknown_system_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"unknown system 'ful_context'\. Did you mean 'full_context'"):
        check_systems(EvalConfig(system="no_memory,ful_context"))


def test_mlmf_needs_a_checkpoint() -> None:
    with pytest.raises(UserError, match="give --checkpoint DIR"):
        check_systems(EvalConfig(system="mlmf"))


def test_a_checkpoint_must_be_there() -> None:
    with pytest.raises(UserError, match="checkpoint absent: no such folder"):
        check_systems(EvalConfig(system="mlmf", checkpoint="absent"))


def test_most_frequent_counts_the_answers_of_other_conversations() -> None:
    (said,) = build_system("most_frequent", Shared(EvalConfig(tasks="locco"))).answer([Query("Who?")])
    answers = [q.answer for c in load_task("locco", split="train").conversations for q in c.questions if q.answer]
    assert answers.count(said.text) == max(map(answers.count, answers))
    with pytest.raises(UserError, match=r"the training part of locco holds conversation .*, which is asked about"):
        build_system("most_frequent", Shared(EvalConfig(tasks="locco", split="train")))


def test_most_frequent_needs_a_training_file_where_a_task_has_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="training_task locomo has no training part of its own; give --training_file"):
        build_system("most_frequent", Shared(EvalConfig(training_task="locomo")))
    file = tmp_path / "train.jsonl"
    record = '{"id": "%s", "sessions": [{"turns": [{"speaker": "A", "text": "Hi"}]}], "questions": [%s]}\n'
    asked = '{"question": "Who?", "answer": "a cat"}'
    file.write_text(record % ("anna", asked))
    other = tmp_path / "test.jsonl"
    other.write_text(record % ("ben", asked))
    settings = {"training_task": "jsonl", "training_file": str(file), "tasks": "jsonl"}
    system = build_system("most_frequent", Shared(EvalConfig(data_file=str(other), **settings)))
    assert system.name == "most_frequent"
    stored = system_settings("most_frequent", EvalConfig(**settings))
    assert (stored["training_file"], len(stored["training_sha256"])) == ("train.jsonl", 64)
    with pytest.raises(UserError, match=r"train\.jsonl holds conversation 'anna', which is asked about"):
        build_system("most_frequent", Shared(EvalConfig(data_file=str(file), **settings)))


def test_settings_of_the_memory_change_what_a_checkpoint_holds_and_recalls(tmp_path: Path) -> None:
    MLMFModel.from_base("tiny-random", MLMFConfig(c_s=64, node_tokens=8)).save_pretrained(tmp_path / "saved")
    changes = MemorySettings(c_s=6, recall_tokens=100, slots="int8")
    config = EvalConfig(system="mlmf", checkpoint=str(tmp_path / "saved"), memory=changes)
    assert system_settings("mlmf", config) == {"memory": {"c_s": 6, "recall_tokens": 100, "slots": "int8"}}
    system = build_system("mlmf", Shared(config))
    turns = tuple(Turn(f"S0:{i}", "Anna", f"number {i} is red") for i in range(20))
    session = Session(0, None, turns)
    system.observe(session)
    assert isinstance(system, MLMFSystem)
    assert len(system.state.nodes[0]) == 6 and system.state.values.dtype == torch.int8
    answer = system.answer([Query("what is number 19?")])[0]
    assert answer.tokens_read > 30
    # one of the six nodes is the date line
    assert answer.turns_left_out == 15
    system.reset()
    system.observe(replace(session, turns=turns[:4]))
    assert system.answer([Query("what is number 3?")])[0].turns_left_out == 0
    with pytest.raises(UserError, match="c_s must be at least 2"):
        build_system("mlmf", Shared(replace(config, memory=MemorySettings(c_s=0))))
