from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.addressing import read_stored
from benchmarks.addressing_answers import add_answers
from mlmf.data.jsonl import dump_jsonl
from mlmf.errors import UserError
from mlmf.evaluation.run import run_evaluation
from tests.benchmarks.test_addressing import CONVERSATION
from tests.evaluation.conftest import config


def test_scores_stand_beside_the_recall(tmp_path: Path) -> None:
    dump_jsonl([CONVERSATION], tmp_path / "talks.jsonl")
    (entry,) = run_evaluation(config(tmp_path / "talks.jsonl", tmp_path, system=["no_memory"])).results
    scores = entry["keys"]["raw"]["scores"]
    stored: dict[str, Any] = {"locco": {"recall@5": 0.5}}
    add_answers(stored, [f"locco={tmp_path}/out/jsonl/no_memory"])
    assert stored["locco"]["recall@5"] == 0.5 and stored["locco"]["n_answers"] == 4
    assert stored["locco"]["f1_answerable"] == scores["answerable_f1"]["mean"]
    assert stored["locco"]["abstention"] == scores["abstention_on_traps"]["mean"]


@pytest.mark.parametrize(
    ("pair", "error"),
    [("locco=nowhere", "no folder nowhere"), ("other=nowhere", "NAME=DIR.* has locco"), ("locco", "NAME=DIR")],
)
def test_what_is_not_there_is_named(pair: str, error: str) -> None:
    stored: dict[str, Any] = {"locco": {"recall@5": 0.5}}
    with pytest.raises(UserError, match=error):
        add_answers(stored, [pair])
    assert stored == {"locco": {"recall@5": 0.5}}


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_stored() == {}
    (tmp_path / "results").mkdir()
    (tmp_path / "results/addressing.json").write_text('{"locco": {', encoding="utf-8")
    with pytest.raises(UserError, match=r"results/addressing\.json is damaged"):
        read_stored()
