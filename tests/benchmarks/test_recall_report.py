"""The report says what the runs found, what was not run, and refuses to mix runs that do not compare."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import recall, recall_train
from benchmarks.recall_report import write_report
from mlmf.errors import UserError


def test_the_command_trains_scores_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the curves need the extra 'bench'")
    monkeypatch.setattr(recall_train, "DISTANCES", (1, 2))
    arguments = "recall --variants no_memory --seeds 0 1 --steps 3 --sessions_in_batch 2 --questions_in_batch 4"
    folders = ["--test_questions", "3", "--output_dir", str(tmp_path / "runs"), "--report_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*arguments.split(), *folders])
    assert recall.main() == 0
    run = json.loads((tmp_path / "runs" / "no_memory.seed1.json").read_text())
    assert (run["variant"], run["seed"], run["steps"]) == ("no_memory", 1, 3)
    figures = json.loads((tmp_path / "results" / "recall.json").read_text())
    assert list(figures["no_memory"]["facts"]) == ["1", "2"]
    with pytest.raises(UserError, match=r"unknown variant 'ful'\. Did you mean 'full'"):
        monkeypatch.setattr(sys, "argv", ["recall", "--variants", "ful"])
        recall.main()


def write_run(folder: Path, variant: str, seed: int, accuracy: float, steps: int = 10) -> None:
    table = {name: {"1": accuracy, "8": accuracy / 2} for name in ("facts", "updates", "never_told")}
    run = {
        "variant": variant, "git_commit": "abc", "seed": seed, "parameters": 1000, "batch": {"sessions": 4, "questions": 8},
        "learning_rate": 0.003, "test_questions": 20, "steps": steps, "stage_began_at_step": {"1": 0, "2": 5},
        "cpu_seconds": 3, "wall_seconds": 4, "accuracy": table,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"{variant}.seed{seed}.json").write_text(json.dumps(run))


def test_means_spread_and_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the curves need the extra 'bench'")
    runs = tmp_path / "runs"
    write_run(runs, "full", 0, 0.9)
    write_run(runs, "full", 1, 1.0)
    write_run(runs, "no_memory", 0, 0.1)
    write_report(runs, tmp_path, ["full", "no_semantic", "no_memory"])
    figures = json.loads((tmp_path / "results" / "recall.json").read_text())
    assert list(figures) == ["full", "no_memory"]
    assert figures["full"]["facts"] == {"1": 0.95, "8": 0.475}
    text = (tmp_path / "docs" / "recall.md").read_text()
    assert "| full | 2 | 0.95 ± 0.07 | 0.47 ± 0.04 |" in text and "| no_memory | 1 | 0.10 | 0.05 |" in text
    assert "Not run, and therefore not in the tables: no_semantic." in text
    assert (tmp_path / "docs" / "recall.svg").read_text().startswith("<?xml")


def test_runs_of_different_settings_are_not_mixed(tmp_path: Path) -> None:
    write_run(tmp_path, "full", 0, 0.9)
    write_run(tmp_path, "no_memory", 0, 0.1, steps=20)
    with pytest.raises(UserError, match=r"different steps \(10, 20\)"):
        write_report(tmp_path, tmp_path, ["full", "no_memory"])


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no runs"):
        write_report(tmp_path, tmp_path, [])
