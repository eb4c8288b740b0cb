from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
import torch

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.training import TrainConfig
from mlmf.data.jsonl import load_jsonl
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.types import Conversation, Question, Session, Turn

COLOURS = ("red", "blue", "green", "white", "black")


@pytest.fixture(scope="session")
def conversations() -> tuple[Conversation, ...]:
    """Two conversations of five short sessions; each session tells one colour, each is asked for."""
    made = []
    for c, name in enumerate(("anna", "carl")):
        sessions = []
        for i, colour in enumerate(COLOURS[c:] + COLOURS[:c]):
            turns = (Turn(f"S{i}:0", name, f"Miso thing {i} is {colour}"), Turn(f"S{i}:1", "Ben", "good to know"))
            sessions.append(Session(i, datetime(2023, 5, i + 1), turns))
        questions = [
            Question(name, i, f"What colour is thing {i}?", (COLOURS[c:] + COLOURS[:c])[i], evidence=(f"S{i}:0",))
            for i in range(4)
        ]
        questions.append(Question(name, 4, "What colour is thing 9?", None, is_trap=True, lure="pink"))
        made.append(Conversation(name, tuple(sessions), tuple(questions), (name, "Ben")))
    return tuple(made)


@pytest.fixture
def data_file(conversations: Sequence[Conversation], tmp_path: Path) -> Path:
    """The same as a file in the documented format."""
    lines = []
    for conversation in conversations:
        sessions = [
            {
                "date": session.date.isoformat() if session.date else None,
                "turns": [{"id": t.id, "speaker": t.speaker, "text": t.text} for t in session.turns],
            }
            for session in conversation.sessions
        ]
        questions = [
            {"question": q.text, "answer": q.answer, "trap": q.is_trap, "evidence": list(q.evidence)}
            for q in conversation.questions
        ]
        lines.append(json.dumps({"id": conversation.id, "sessions": sessions, "questions": questions}))
    file = tmp_path / "talks.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [c.sessions for c in load_jsonl(file)] == [c.sessions for c in conversations]
    return file


@pytest.fixture
def make_model() -> Callable[..., MLMFModel]:
    """A fresh tiny Llama with memory, always the same; keyword arguments are settings."""

    def make(*, dtype: torch.dtype = torch.float32, **settings: object) -> MLMFModel:
        config = MLMFConfig(**{"lora": LoraSettings(r=4), "recall_nodes": 2, **settings})  # type: ignore[arg-type]
        return MLMFModel(tiny_model("llama", dtype=dtype), tiny_tokenizer(), config).eval()

    return make


@pytest.fixture
def make_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainConfig]:
    """Settings of a run of a few steps in ``tmp_path``, with a cache of its own."""
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path / "cache"))

    def make(**settings: object) -> TrainConfig:
        quick: dict[str, object] = {
            "task": "jsonl", "max_steps": 6, "per_device_train_batch_size": 3, "warmup_steps": 1, "save_steps": 0,
            "logging_steps": 1, "output_dir": str(tmp_path / "run"), "learning_rate": 3e-3,
        }  # fmt: skip
        return TrainConfig(**{**quick, **settings})  # type: ignore[arg-type]

    return make
