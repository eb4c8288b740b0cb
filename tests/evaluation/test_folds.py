"""Folds by conversation: each is asked of the checkpoint that never saw it, and one table covers them all."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mlmf.evaluation.asking as asking_module
from mlmf.data.jsonl import dump_jsonl, load_jsonl
from mlmf.data.splits import k_folds
from mlmf.errors import UserError
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.samples import read_samples
from mlmf.types import Conversation, Session
from tests.evaluation.conftest import SpySystem, config, make_conversation

NAMES = ["anna", "ben", "carl", "dora"]


@pytest.fixture
def people(conversation: Conversation, tmp_path: Path) -> Path:
    """Four conversations with four questions each."""
    path = tmp_path / "people.jsonl"
    dump_jsonl(
        [
            make_conversation(
                name, [replace(q, conversation_id=name, id=f"{name}#{q.index}") for q in conversation.questions]
            )
            for name in NAMES
        ],
        path,
    )
    return path


@pytest.fixture
def trained(people: Path, checkpoint: Path, tmp_path: Path) -> str:
    """A checkpoint for each of two folds, trained on what the fold does not test."""
    for number, fold in enumerate(k_folds(NAMES, 2)):
        shutil.copytree(checkpoint, tmp_path / f"fold_{number}")
        path = tmp_path / f"fold_{number}" / "config.json"
        facts = {"task": "jsonl", "conversation_ids": {"jsonl": list(fold.train)}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"training": facts}))
    return str(tmp_path / "fold_{fold}")


def test_each_conversation_is_asked_of_the_checkpoint_that_never_saw_it(
    people: Path, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spies: dict[str, SpySystem] = {}
    monkeypatch.setattr(
        asking_module,
        "build_system",
        lambda name, shared: spies.setdefault(str(shared.config.checkpoint), SpySystem()),
    )
    settings: dict[str, Any] = {"system": ["mlmf"], "checkpoint": trained, "folds": 2}
    outcome = run_evaluation(config(people, tmp_path, **settings))
    heard = {
        path: {call.turns[0].text.split()[0] for call in spy.calls if isinstance(call, Session)}
        for path, spy in spies.items()
    }
    assert heard == {
        trained.replace("{fold}", str(number)): set(fold.test) for number, fold in enumerate(k_folds(NAMES, 2))
    }
    (entry,) = outcome.results
    assert entry["n"] == {"original": 16, "effective": 16, "answers": 16, "failed": 0}
    assert entry["keys"]["raw"]["scores"]["answerable_f1"]["conversations"] == 4
    assert (set(entry["trained_on"]["ids"]), entry["trained_on"]["scored"]) == (set(NAMES), [])
    assert entry["folds"] == [list(fold.test) for fold in k_folds(NAMES, 2)]
    assert len(entry["settings"]["0"]["checkpoint_sha256"]) == 2
    rows = (tmp_path / "out" / "jsonl" / "mlmf" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(row)["conversation_id"] for row in rows[::4]] == NAMES
    report = (tmp_path / "out" / "report.md").read_text()
    assert "one checkpoint for each of 2 folds" in report and "| mlmf | 2 checkpoints | - | 4 tokens | 0 |" in report
    # nothing is asked again, and the answers can be scored apart
    asked = {path: len(spy.calls) for path, spy in spies.items()}
    again = run_evaluation(config(people, tmp_path, score_only=True, **settings)).results[0]
    assert again["keys"] == entry["keys"]
    assert asked == {path: len(spy.calls) for path, spy in spies.items()}


def test_systems_without_a_checkpoint_are_asked_once_about_everything(
    people: Path, trained: str, tmp_path: Path
) -> None:
    settings = {"system": ["no_memory", "mlmf"], "checkpoint": trained, "folds": 2}
    entries = run_evaluation(config(people, tmp_path, **settings)).results
    assert [entry["n"]["effective"] for entry in entries] == [16, 16]
    assert [entry["folds"] is None for entry in entries] == [True, False]
    assert len(read_samples(tmp_path / "out" / "jsonl" / "mlmf" / "seed_0" / "samples.jsonl")) == 16


def test_folds_that_were_divided_otherwise_are_refused(people: Path, trained: str, tmp_path: Path) -> None:
    assert k_folds(NAMES, 2, seed=0) != k_folds(NAMES, 2, seed=2)
    settings = {"system": "mlmf", "checkpoint": trained, "folds": 2, "fold_seed": 2}
    with pytest.raises(UserError, match=r"was trained on .* fold \d tests them, so give the --folds and --fold_seed"):
        run_evaluation(config(people, tmp_path, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"folds": 2, "checkpoint": "x"},
            r"folds is 2, but checkpoint x names no \{fold\}; give one for each, such as --checkpoint",
        ),
        ({"checkpoint": "x_{fold}"}, r"checkpoint x_\{fold\} names a \{fold\}; say which with --folds"),
        ({"folds": 1, "checkpoint": "x_{fold}"}, "folds must be at least 2, got 1"),
    ],
)
def test_folds_need_checkpoints_that_are_named_by_fold(
    people: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        config(people, tmp_path, **settings)
    assert load_jsonl(people)
