"""What the read benchmark asks, and the figure it must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import read
from mlmf.config.model import MLMFConfig
from mlmf.errors import UserError
from mlmf.model import MLMFModel

ROOT = Path(__file__).parents[2]
FLOOR = 0.68


def test_every_answer_is_in_the_one_session_that_is_remembered() -> None:
    asked = read.evidence()
    assert len(asked) == 288 and len({question.conversation_id for question, _ in asked}) == 16
    for question, session in asked:
        assert set(question.evidence) <= {turn.id for turn in session.turns}
        assert question.answer and question.evidence


def test_the_memory_is_the_evidence_and_the_control_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MLMFModel.from_base("tiny-random", MLMFConfig())
    asked = read.evidence()[:3]
    seen: list[tuple[tuple[int, ...], int]] = []
    answer: Callable[..., object] = model.answer_all

    def watch(queries: list[object], state: object) -> object:
        answers = answer(queries, state, max_new_tokens=1)
        seen.append((state.sessions, min(len(one.recalled) for one in answers)))  # type: ignore[attr-defined]
        golds = [question.answer for question, _ in asked if question.query in queries]
        is_empty = not any(seen[-1][0])
        return [replace(one, text="" if is_empty else gold) for one, gold in zip(answers, golds, strict=True)]

    monkeypatch.setattr(model, "answer_all", watch)
    scores = read.measure(model, asked, batch_size=2)
    assert [sessions for sessions, _ in seen] == [(1, 1), (0, 0), (1,), (0,)]
    turns = [min(len(session.turns) for _, session in asked[:2]), 0, len(asked[2][1].turns), 0]
    most = MLMFConfig().recall_nodes
    assert [recalled for _, recalled in seen] == [min(count, most) for count in turns]
    assert (scores["f1_memory_on"], scores["f1_memory_off"]) == (1.0, 0.0)
    assert scores["n_questions"] == 3


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read.open_checkpoint(tmp_path / "nowhere")


@pytest.mark.slow
def test_the_trained_model_reads_its_memory() -> None:
    checkpoint = ROOT / read.DEMO_CHECKPOINT
    if not checkpoint.is_dir():
        pytest.skip(f"no checkpoint in {read.DEMO_CHECKPOINT}: make demo or make read-benchmark trains it")
    scores = read.measure(MLMFModel.from_pretrained(checkpoint), read.evidence())
    assert scores["f1_memory_on"] >= FLOOR
    assert scores["f1_memory_off"] < 0.1
