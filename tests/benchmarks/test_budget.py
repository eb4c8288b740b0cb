"""The budget benchmark: both systems at the same budgets, and a curve of what they reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.budget import draw, measure
from mlmf import MLMFConfig, MLMFModel


@pytest.mark.slow
def test_both_systems_show_no_more_than_the_budget_and_are_drawn(tmp_path: Path) -> None:
    checkpoint = tmp_path / "tiny"
    MLMFModel.from_base("tiny-random", MLMFConfig(base_model="tiny-random")).save_pretrained(checkpoint)
    figures = measure(checkpoint, ["conv-30"], [0, 400], tmp_path / "out", limit=2)
    assert {system: list(found) for system, found in figures.items()} == {"mlmf": ["0", "400"], "hybrid": ["400"]}
    assert all(one["n_questions"] == 2 for found in figures.values() for one in found.values())
    assert figures["mlmf"]["0"]["tokens_read"] < figures["mlmf"]["400"]["tokens_read"]
    assert figures["mlmf"]["0"]["turns"] == 8  # what the tensors hold is read at any budget
    draw(figures, tmp_path / "curve.svg")
    assert "hybrid" in (tmp_path / "curve.svg").read_text()
