"""Curves of made-up logs: a later stage goes on where the first ended, and a folder without a log is named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.curves import PANELS, draw, points, read_stages
from mlmf.errors import UserError

METRICS = [metric for panel in PANELS for metric in panel.metrics]


def run(folder: Path, values: dict[int, float]) -> Path:
    """A log whose metrics all have the same value at a step, but for one part of the loss that is 0."""
    folder.mkdir()
    lines = [{"step": step, **dict.fromkeys(METRICS, value), "loss/hinge": 0.0} for step, value in values.items()]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_a_later_stage_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    stages = read_stages([run(tmp_path / "words", {10: 4.0, 20: 2.0}), run(tmp_path / "talks", {10: 3.0, 15: 1.0})])
    assert [(stage.name, stage.start, stage.end) for stage in stages] == [("words", 0, 20), ("talks", 20, 35)]
    steps, values = points(stages, "loss/total")
    assert steps == [10, 20, 20, 30, 35, 35]
    assert values[:2] == [4.0, 2.0] and values[3:5] == [3.0, 1.0] and math.isnan(values[2])
    draw(stages, tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text()
    assert "words up to step 20, then talks up to step 35" in drawn and ">semantic<" in drawn
    assert ">ret<" in drawn and ">hinge<" not in drawn
    draw(stages, tmp_path / "again" / "curves.svg")
    assert (
        tmp_path / "again" / "curves.svg"
    ).read_text() == drawn  # no date, no chance: git sees a change only where one is


@pytest.mark.parametrize(
    ("log", "message"),
    [(None, "holds no metrics.jsonl"), ("", "is empty"), ('{"step": 1}\n{"step', "line 2 is cut off")],
)
def test_a_log_that_cannot_be_drawn_is_named(tmp_path: Path, log: str | None, message: str) -> None:
    if log is not None:
        (tmp_path / "metrics.jsonl").write_text(log)
    with pytest.raises(UserError, match=message) as caught:
        read_stages([tmp_path])
    assert str(tmp_path) in str(caught.value)
