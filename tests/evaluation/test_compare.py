"""Two systems on the same questions: what is paired, what is left out, and what is corrected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.evaluation.compare import Run, compare_runs
from mlmf.evaluation.finished import compare_folders
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Answer
from tests.evaluation.conftest import SpySystem, config


def run(label: str, scores: list[float | None], *, sha: str = "a", seeds: tuple[int, ...] = (0,)) -> Run:
    """Four questions in each conversation, the same score under every seed; ``None`` is a failure."""
    rows = [
        {
            "key": "raw", "seed": seed, "conversation_id": f"c{index // 4}", "index": index, "period": None,
            "status": "error" if score is None else "ok", "is_trap": False, "metrics": {"f1": score},
        }
        for seed in seeds
        for index, score in enumerate(scores)
    ]  # fmt: skip
    data = {"sha256": sha, "probes_sha256": None}
    entry = {"task": "jsonl", "data": data, "seeds": list(seeds), "keys": {"raw": {"scores": {"metric": "f1"}}}}
    return Run(label, entry, rows)


def test_a_failed_question_is_left_out_of_both_sides() -> None:
    (found, _) = compare_runs([run("a", [0.0, None, 0.5, 1.0]), run("b", [1.0, 1.0, 0.5, None])], seed=0)
    assert (found["n"], found["first"], found["second"], found["difference"]) == (2, 0.25, 0.75, 0.5)
    assert found["systems"] == ["a", "b"]
    assert (found["ci95"], found["p_bootstrap"], found["p_seeds"]) == (None, None, None)


def test_runs_on_other_data_are_not_compared() -> None:
    assert compare_runs([run("a", [0.0]), run("b", [1.0], sha="b")], seed=0) == []


def test_p_values_are_corrected_over_the_pairs_of_a_measure() -> None:
    scores = {"a": [0.0, 0.2] * 8, "b": [0.1, 0.2] * 8, "c": [0.9, 1.0] * 7 + [0.9, 0.9]}
    found = [
        one
        for one in compare_runs([run(*item) for item in scores.items()], seed=0)
        if one["measure"] == "answerable_f1"
    ]
    raw, corrected = ([one[name] for one in found] for name in ("p_t", "p_t_holm"))
    order = sorted(range(3), key=raw.__getitem__)
    worst = 0.0
    for rank, position in enumerate(order):
        worst = max(worst, (3 - rank) * raw[position])
        assert corrected[position] == pytest.approx(worst)


def test_seeds_stand_beside_each_other_and_are_spread(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    first = run_evaluation(config(data_file, tmp_path, system="no_memory", seeds=[3])).results[0]
    assert first["keys"]["raw"]["over_seeds"]["answerable_f1"]["sd"] is None
    spy.answers["Question 0?"] = Answer("SECRETGOLD0")
    asked = len(spy.calls)
    entry = run_evaluation(config(data_file, tmp_path, system="no_memory", seeds=[3, 4])).results[0]
    assert len(spy.calls) > asked
    # two of three right under seed 4, one under seed 3, which was not asked again
    found = entry["keys"]["raw"]["over_seeds"]["answerable_f1"]
    assert found["values"] == {"3": pytest.approx(1 / 3), "4": pytest.approx(2 / 3)}
    assert (found["mean"], found["sd"]) == (pytest.approx(0.5), pytest.approx((1 / 18) ** 0.5))
    assert not entry["keys"]["raw"]["over_seeds"]["same_answers"]
    assert (entry["seeds"], entry["n"]["effective"], entry["n"]["answers"]) == ([3, 4], 8, 16)
    assert entry["keys"]["raw"]["scores"]["answerable_f1"]["mean"] == pytest.approx(0.5)
    for seed in (3, 4):
        assert (tmp_path / "out" / "jsonl" / "no_memory" / f"seed_{seed}" / "samples.jsonl").is_file()
    assert "| no_memory | 0.500 ± 0.236 |" in (tmp_path / "out" / "report.md").read_text()


def test_a_seed_in_the_name_of_the_checkpoint_takes_the_model_of_that_seed(
    data_file: Path, tmp_path: Path, checkpoint: Path, spy: SpySystem
) -> None:
    settings = {"system": "mlmf", "seeds": [1, 2], "checkpoint": str(tmp_path / "run_{seed}")}
    (tmp_path / "run_1").symlink_to(checkpoint)
    with pytest.raises(UserError, match="run_2: no such folder"):
        run_evaluation(config(data_file, tmp_path, **settings))
    (tmp_path / "run_2").symlink_to(checkpoint)
    entry = run_evaluation(config(data_file, tmp_path, **settings)).results[0]
    assert [made["seed"] for made in entry["settings"].values()] == [1, 2]
    assert entry["keys"]["raw"]["over_seeds"]["same_answers"]


def test_finished_folders_are_compared_without_asking(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]
    run_evaluation(config(data_file, tmp_path, system="no_memory", output_dir=folders[0]))
    spy.answers["Question 0?"] = Answer("SECRETGOLD0")
    run_evaluation(config(data_file, tmp_path, system="no_memory", output_dir=folders[1], max_new_tokens=5))
    spy.calls.clear()
    outcome = compare_folders(config(data_file, tmp_path, compare=folders, output_dir=str(tmp_path / "both")))
    assert (spy.calls, outcome.exit_code) == ([], 0)
    (found, *_) = json.loads((tmp_path / "both" / "comparison.json").read_text())["comparisons"]
    assert found["systems"] == ["a/no_memory", "b/no_memory"]
    assert (found["n"], found["difference"]) == (6, pytest.approx(1 / 3))
    page = (tmp_path / "both" / "comparison.md").read_text()
    assert "| a/no_memory | b/no_memory | 0.333 | 0.667 | +0.333 |" in page
    assert "not asked alike: max_new_tokens is 4 for a/no_memory; 5 for b/no_memory." in page
    with pytest.raises(UserError, match=r"nothing/results\.json: no such file; compare takes output folders"):
        compare_folders(config(data_file, tmp_path, compare=[folders[0], str(tmp_path / "nothing")]))
    with pytest.raises(UserError, match="hold no two runs"):
        compare_folders(config(data_file, tmp_path, compare=folders[:1]))
