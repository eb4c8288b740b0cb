"""Tables for people: what stands in a row once, and what fits on a terminal of 100 columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Answer
from tests.evaluation.conftest import SpySystem, config

SYSTEMS = ["no_memory", "oracle_evidence", "always_abstain"]


def test_a_terminal_of_100_columns_cuts_nothing(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    settings = {"system": SYSTEMS, "seeds": [0, 1]}
    outcome = run_evaluation(config(data_file, tmp_path, **settings))
    console = Console(width=100, record=True, file=(tmp_path / "out.txt").open("w"))
    console.print(outcome.tables)
    text = console.export_text()
    assert "\u2026" not in text
    assert all(name in text for name in SYSTEMS)


def test_the_control_has_one_row_whoever_asks_for_it(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    run_evaluation(config(data_file, tmp_path, system=["no_memory", "always_abstain"]))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| always abstain |" not in report
    first = report.split("F1 by category")[0]
    assert len([line for line in first.splitlines() if line.startswith("| always_abstain |")]) == 1


def test_the_control_stands_under_retention_too(tmp_path: Path, spy: SpySystem) -> None:
    settings = {"system": "no_memory", "tasks": "locco", "data_file": None, "conversations": ["2"]}
    outcome = run_evaluation(config(tmp_path, tmp_path, **settings, retention="balanced"))
    assert outcome.report_path is not None
    table = outcome.report_path.read_text().split("locco: retention, share of consistent answers:")[1]
    row = next(line for line in table.splitlines() if line.startswith("| always abstain |"))
    assert row == "| always abstain | 0.000 | 0.000 | - | - | - | 0.000 | 0.000 | 0.0 % | 100.0 % |"


def test_what_full_context_left_out_is_said(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    spy.answers["Question 0?"] = Answer("a cat", turns_left_out=3)
    run_evaluation(config(data_file, tmp_path, system="full_context"))
    report = (tmp_path / "out" / "report.md").read_text()
    assert (
        "full_context on jsonl: 2 of 8 questions were asked without all turns, since there was no room: 3 turns on average, "
        "50.0 % of the history, were cut to the model's window or dropped from a full memory."
    ) in report


def test_costs_stand_beside_their_ratios(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    outcome = run_evaluation(config(data_file, tmp_path, system=["no_memory", "full_context"]))
    assert outcome.results[1]["ratios_to_full_context"]["tokens_read"] == 1.0
    report = (tmp_path / "out" / "report.md").read_text()
    ratios = report.split("jsonl: cost as a multiple of full_context's (of the same run):")[1]
    rows = [line for line in ratios.splitlines() if line.startswith("| full_context |")]
    assert rows[0].startswith("| full_context | 1.000 |")
    assert "minutes per 1,000 questions" in report


def test_systems_that_were_not_asked_alike_are_named(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    run_evaluation(config(data_file, tmp_path, system=["no_memory", "bm25"], window_tokens=100))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "not asked alike" not in report
    run_evaluation(config(data_file, tmp_path, system="recent_window", window_tokens=300))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "The systems on jsonl were not asked alike: window_tokens is 300 for recent_window; 100 for bm25." in report


def test_what_was_asked_and_how_stands_in_the_report(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    (entry,) = run_evaluation(config(data_file, tmp_path, system="bm25", seeds=[0, 2])).results
    part = (tmp_path / "out" / "report.md").read_text().split("jsonl: how it was asked")[1]
    assert f"(mine.jsonl, sha256 {entry['data']['sha256'][:12]})" in part
    row = next(line for line in part.splitlines() if line.startswith("| bm25 |"))
    assert row.startswith(f"| bm25 | tiny-random | 400 tokens | 4 tokens | 0, 2 | {entry['created_at'][:10]} |")


def test_captions_are_mentioned_where_there_are_any(locomo: LoadedData, tmp_path: Path, spy: SpySystem) -> None:
    settings: dict[str, Any] = {"tasks": "locomo", "data_file": None, "limit": 2, "system": "no_memory"}
    run_evaluation(config(tmp_path, tmp_path, captions=False, **settings))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "captions of shared pictures left out)" in report
    assert "conv-26#161" in report
