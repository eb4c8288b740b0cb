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

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(recall, "train", never)
    assert recall.main() == 0  # what is there is kept
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--learning_rate", "0.001"])
    with pytest.raises(UserError, match=r"no_memory\.seed0\.json: learning_rate is 0\.003 there and 0\.001 here"):
        recall.main()
    with pytest.raises(UserError, match=r"unknown variant 'ful'\. Did you mean 'full'"):
        monkeypatch.setattr(sys, "argv", ["recall", "--variants", "ful"])
        recall.main()


def write_run(
    folder: Path, variant: str, seed: int, accuracy: float, steps: int = 10, updates: float | None = None
) -> None:
    table = {name: {"1": accuracy, "8": accuracy / 2} for name in ("facts", "updates", "never_told")}
    if updates is not None:
        table["updates"]["8"] = updates
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


def test_each_ablation_is_told_where_it_loses_most_or_that_it_does_not(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the curves need the extra 'bench'")
    runs = tmp_path / "runs"
    for seed in (0, 1):
        write_run(runs, "full", seed, 0.9)
        write_run(runs, "no_versions", seed, 0.9, updates=0.1 + 0.1 * seed)  # 0.35 and 0.25 below 0.45
        write_run(runs, "no_gating", seed, 0.9, updates=0.45 - 0.24 * seed)  # none and 0.24: not from every seed
        write_run(runs, "lambda_0", seed, 0.95)
        write_run(runs, "no_memory", seed, 0.0)
    write_run(runs, "no_working", 7, 0.5)
    write_report(runs, tmp_path, ["full", "no_versions", "no_gating", "lambda_0", "no_working", "no_memory"])
    told = [line for line in (tmp_path / "docs" / "recall.md").read_text().splitlines() if line.startswith("* `")]
    assert told[-4:] == [
        "* `no_versions` is visibly worse: updates at 8, by 0.30 ± 0.07.",
        "* `no_gating` is not visibly worse anywhere; its largest drop is updates at 8, by 0.12 ± 0.17.",
        "* `lambda_0` is not worse anywhere.",
        "* `no_working`: no seed in common with `full`.",
    ]


def test_runs_of_different_settings_are_not_mixed(tmp_path: Path) -> None:
    write_run(tmp_path, "full", 0, 0.9)
    write_run(tmp_path, "no_memory", 0, 0.1, steps=20)
    with pytest.raises(UserError, match=r"different steps \(10, 20\)"):
        write_report(tmp_path, tmp_path, ["full", "no_memory"])


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no runs"):
        write_report(tmp_path, tmp_path, [])
