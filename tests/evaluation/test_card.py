"""Scores in a model card: those of runs of that very checkpoint, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from mlmf.config.model import MemorySettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.evaluation.card import write_card
from mlmf.evaluation.run import run_evaluation
from mlmf.model import MLMFModel
from tests.evaluation.conftest import config


def test_scores_of_the_checkpoints_own_runs_are_put_into_its_card(data_file: Path, tmp_path: Path) -> None:
    MLMFModel.from_base("tiny-random", MLMFConfig()).save_pretrained(tmp_path / "mine")
    MLMFModel.from_base("tiny-random", MLMFConfig(seed=1)).save_pretrained(tmp_path / "other")
    settings: dict[str, Any] = {"system": "mlmf", "checkpoint": str(tmp_path / "mine")}
    for name, tokens in (("tensor", 0), ("text", 40)):
        run_evaluation(config(data_file, tmp_path / name, **settings, memory=MemorySettings(recall_tokens=tokens)))
    runs = [str(tmp_path / name / "out" / "jsonl" / "mlmf") for name in ("tensor", "text")]

    card = ModelCard(write_card(tmp_path / "mine", runs).read_text(encoding="utf-8"))
    scores = json.loads((Path(runs[0]) / "results.json").read_text())["keys"]["raw"]["scores"]
    assert "| jsonl | 0 | " in card.text and "| jsonl | 40 | " in card.text
    counts = f"| {scores['answerable_f1']['n']} | {scores['abstention_on_traps']['n']} |"
    assert card.text.count(counts) == 2
    widths = {line.count("|") for line in card.text.splitlines() if line.startswith("|")}
    assert widths == {10}
    measured = [(one.metric_name, one.metric_value) for one in card.data.eval_results or []]
    assert measured[0][1] == round(scores["answerable_f1"]["mean"], 4)
    assert [name for name, _ in measured] == [f"F1 of answerable questions, {n} recalled tokens" for n in (0, 40)]

    with pytest.raises(UserError, match=r"mlmf: answered by another model than .*other; score this one"):
        write_card(tmp_path / "other", runs)
    with pytest.raises(UserError, match=r"nowhere: no such folder; give DIR/TASK/SYSTEM"):
        write_card(tmp_path / "mine", ["nowhere"])


def test_what_another_system_scored_is_not_the_memorys(data_file: Path, tmp_path: Path) -> None:
    MLMFModel.from_base("tiny-random", MLMFConfig()).save_pretrained(tmp_path / "mine")
    settings: dict[str, Any] = {"checkpoint": str(tmp_path / "mine"), "answer_model": "checkpoint"}
    run_evaluation(config(data_file, tmp_path, system="no_memory", **settings))
    with pytest.raises(UserError, match="is about no_memory, whatever model answered for it; give a run of mlmf"):
        write_card(tmp_path / "mine", [str(tmp_path / "out" / "jsonl" / "no_memory")])


def test_a_part_of_the_questions_is_said_to_be_one(data_file: Path, tmp_path: Path) -> None:
    MLMFModel.from_base("tiny-random", MLMFConfig()).save_pretrained(tmp_path / "mine")
    run_evaluation(config(data_file, tmp_path, system="mlmf", checkpoint=str(tmp_path / "mine"), limit=1))
    card = write_card(tmp_path / "mine", [str(tmp_path / "out" / "jsonl" / "mlmf")]).read_text(encoding="utf-8")
    assert " Of jsonl, 1 of " in card and card.count("questions were asked.") == 1
