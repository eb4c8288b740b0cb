"""Whole evaluations with the tiny model: what lies on the disk afterwards, and what the exit code says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mlmf.evaluation.asking as asking_module
from mlmf.config.model import MLMFConfig
from mlmf.data.locco import FILES, PROBE_FILES
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.evaluation.provenance import folder_sha256
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.samples import LOCK_FILE, read_samples, sole_writer
from mlmf.evaluation.selection import select_questions
from mlmf.model import MLMFModel
from mlmf.paths import sha256_of
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.types import Answer, Conversation
from tests.evaluation.conftest import SpySystem, config, make_conversation

ROOT = Path(__file__).parents[2]


def test_a_run_leaves_results_samples_and_a_report(data_file: Path, tmp_path: Path) -> None:
    outcome = run_evaluation(config(data_file, tmp_path))
    assert outcome.exit_code == 0
    out = tmp_path / "out"
    files = (path for path in out.rglob("*") if path.is_file() and path.name != LOCK_FILE)
    names = sorted(path.relative_to(out).as_posix() for path in files)
    per_system = ["results.json", "scores.jsonl", "seed_0/samples.jsonl", "seed_0/settings.json"]
    expected = [f"jsonl/{name}/{file}" for name in ("no_memory", "recent_window") for file in per_system]
    plots = [
        f"plots/jsonl-{what}.{end}"
        for what in ("growth-seconds", "growth-tokens_read", "raw-categories")
        for end in ("png", "svg")
    ]
    assert names == [*expected, *plots, "report.html", "report.md", "results.json"]
    combined = json.loads((out / "results.json").read_text())
    assert (combined["schema_version"], combined["results"]) == (4, outcome.results)
    assert [one["systems"] for one in combined["comparisons"]] == [["no_memory", "recent_window"]] * 2
    single = json.loads((out / "jsonl" / "recent_window" / "results.json").read_text())
    assert single == outcome.results[1]
    assert list(single) == [
        "schema_version", "system", "task", "settings", "scoring", "data", "trained_on", "seeds", "n", "is_limited", "keys",
        "usage", "ratios_to_full_context", "versions", "git_commit", "created_at",
    ]  # fmt: skip
    assert single["n"] == {"original": 8, "effective": 8, "answers": 8, "failed": 0}
    settings = json.loads((out / "jsonl" / "recent_window" / "seed_0" / "settings.json").read_text())
    assert single["settings"] == {"0": settings}
    assert single["data"]["source"] == "mine.jsonl"
    assert re.fullmatch("[0-9a-f]{64}", single["data"]["sha256"])
    assert single["usage"]["tokens_read"] > outcome.results[0]["usage"]["tokens_read"]
    assert str(tmp_path) not in (out / "results.json").read_text()


def test_the_same_run_twice_gives_the_same_scores(data_file: Path, tmp_path: Path) -> None:
    first, second = (
        run_evaluation(config(data_file, tmp_path, output_dir=str(tmp_path / name))).results for name in ("a", "b")
    )
    assert [entry["keys"] for entry in first] == [entry["keys"] for entry in second]


def test_a_limited_run_is_stamped_everywhere(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    outcome = run_evaluation(config(data_file, tmp_path, system="no_memory", limit=5))
    assert (tmp_path / "out" / "report.md").read_text().splitlines()[0] == "SMOKE, n=5 of 8"
    assert outcome.results[0]["is_limited"] is True
    assert outcome.results[0]["n"] == {"original": 8, "effective": 5, "answers": 5, "failed": 0}
    # lifting the limit continues the same run
    spy.calls.clear()
    outcome = run_evaluation(config(data_file, tmp_path, system="no_memory"))
    assert outcome.results[0]["n"]["effective"] == 8
    assert [len(call) for call in spy.calls if isinstance(call, tuple)] == [3]
    assert (tmp_path / "out" / "report.md").read_text().startswith("# Results on jsonl\n")


def test_the_report_shows_measures_the_control_and_answers(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    spy.answers["Question 1?"] = Answer("a cat | dog", recalled=("S1:0",), recalled_lines=("[9 May 2023] Anna: hi",))
    run_evaluation(config(data_file, tmp_path, system="no_memory"))
    report = (tmp_path / "out" / "report.md").read_text()
    rows = [line.split(" | ") for line in report.splitlines() if line.startswith("| ")]
    named = {row[0].removeprefix("| "): row for row in rows if row[0] in ("| no_memory", "| always abstain")}
    assert set(named) == {"no_memory", "always abstain"}
    header = rows[0]
    main = dict(zip(header, next(row for row in rows if row[0] == "| no_memory"), strict=True))
    assert main["abstains on traps"] == "100.0 %"
    assert main["answerable F1"] == "0.222"  # 0.667 for "cat dog" against "cat", 0 for two others
    assert main["n"] == "8"
    assert "6 answerable questions, 2 traps, 2 conversations" in report
    assert "| Question 1? | a cat | a cat \\| dog | 0.667 | [9 May 2023] Anna: hi |" in report
    assert "### jsonl, no_memory: 8 answers" in report
    assert "Warning" not in report  # nobody takes their own data for a benchmark


def test_too_many_failures_fail_the_run_and_are_reported(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    spy.fail_on["Question 2?"] = RuntimeError("boom")
    settings = {"system": "no_memory", "batch_size": 1}
    outcome = run_evaluation(config(data_file, tmp_path, **settings))
    assert outcome.exit_code == 1
    scores = outcome.results[0]["keys"]["raw"]["scores"]["answerable_f1"]
    assert (scores["n"], scores["mean"], scores["zero_filled"]) == (4, 0.5, pytest.approx(1 / 3))
    report = (tmp_path / "out" / "report.md").read_text()
    assert "2 of 8 questions failed and are left out of its means; counted as zero, answerable F1 is 0.333" in report
    assert run_evaluation(config(data_file, tmp_path, max_error_share=0.25, **settings)).exit_code == 0


def test_a_limited_report_in_a_fuller_folder_is_about_the_limit_alone(
    data_file: Path, tmp_path: Path, spy: SpySystem
) -> None:
    run_evaluation(config(data_file, tmp_path, system="no_memory"))
    spy.calls.clear()
    outcome = run_evaluation(config(data_file, tmp_path, system="no_memory", limit=3))
    assert spy.calls == []
    entry = outcome.results[0]
    assert entry["n"] == {"original": 8, "effective": 3, "answers": 3, "failed": 0}
    scores = entry["keys"]["raw"]["scores"]
    # of the three answers "a cat" one is right; the only trap of the conversation comes fourth
    assert (scores["answerable_f1"]["n"], scores["answerable_f1"]["mean"]) == (3, pytest.approx(1 / 3))
    assert (scores["abstention_on_traps"]["n"], scores["answerable_f1"]["conversations"]) == (0, 1)
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.startswith("SMOKE, n=3 of 8\n")
    assert "3 answerable questions, 0 traps, 1 conversation:" in report
    assert "### jsonl, no_memory: 3 answers" in report
    samples = tmp_path / "out" / "jsonl" / "no_memory" / "seed_0" / "samples.jsonl"
    assert len(read_samples(samples)) == 8


def test_a_second_run_in_the_same_folder_is_refused(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    with (
        sole_writer(tmp_path / "out" / "jsonl" / "recent_window"),
        pytest.raises(UserError, match=r"out/jsonl/recent_window: another run is writing here"),
    ):
        run_evaluation(config(data_file, tmp_path))
    assert spy.calls == []
    assert run_evaluation(config(data_file, tmp_path)).exit_code == 0


@pytest.mark.parametrize("name", ["file", "file/under"])
def test_an_output_dir_that_cannot_be_made_is_refused_before_anything_is_loaded(
    data_file: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(asking_module, "load_from_config", lambda *_, **__: pytest.fail("data was loaded"))
    with pytest.raises(UserError, match=f"output_dir {tmp_path / name}: {tmp_path / 'file'} is not a folder"):
        run_evaluation(config(data_file, tmp_path, output_dir=str(tmp_path / name)))


def test_a_file_where_a_system_writes_is_refused(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    (tmp_path / "out" / "jsonl").mkdir(parents=True)
    (tmp_path / "out" / "jsonl" / "no_memory").touch()
    with pytest.raises(UserError, match="jsonl/no_memory is not a folder"):
        run_evaluation(config(data_file, tmp_path))
    assert spy.calls == []


def test_questions_of_ones_own_are_what_the_warning_names(tmp_path: Path, spy: SpySystem) -> None:
    lines = (FILES / PROBE_FILES["test"]).read_text(encoding="utf-8").splitlines()[:1]
    probes = tmp_path / "mine.jsonl"
    probes.write_text(f"{lines[0]}\n", encoding="utf-8")
    settings = {"system": "no_memory", "tasks": "locco", "data_file": None}
    run_evaluation(config(probes, tmp_path, probes=str(probes), **settings))
    report = (tmp_path / "out" / "report.md").read_text()
    assert f"Unpinned questions: mine.jsonl (sha256 {sha256_of(probes)[:12]})" in report
    assert "Unpinned data" not in report
    assert "### locco, no_memory: 1 answer\n" in report
    with pytest.raises(UserError, match="task locco_l has no questions to ask; give --probes FILE"):
        run_evaluation(config(probes, tmp_path, **(settings | {"tasks": "locco_l"})))


def test_other_settings_in_the_same_folder_are_refused_before_anything_is_asked(
    data_file: Path, tmp_path: Path, spy: SpySystem
) -> None:
    run_evaluation(config(data_file, tmp_path))
    spy.calls.clear()
    with pytest.raises(UserError, match=r"recent_window.*window_tokens: 400 -> 9"):
        run_evaluation(config(data_file, tmp_path, window_tokens=9))
    assert spy.calls == []
    assert run_evaluation(config(data_file, tmp_path, window_tokens=9, overwrite=True)).exit_code == 0
    assert len(read_samples(tmp_path / "out" / "jsonl" / "recent_window" / "seed_0" / "samples.jsonl")) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conversations": ["anna", "bem"]}, "unknown conversation of jsonl 'bem'. Did you mean 'ben'"),
        ({"tasks": "locomoo", "data_file": None}, "unknown task 'locomoo'. Did you mean 'locomo'"),
        ({"tasks": "msc"}, "mine.jsonl"),
        ({"data_file": "absent.jsonl"}, "absent.jsonl"),
        ({"answer_model": "checkpoint", "checkpoint": "absent"}, "checkpoint absent: no such folder"),
    ],
)
def test_bad_input_is_one_error_and_leaves_nothing(
    data_file: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        run_evaluation(config(data_file, tmp_path, **changes))
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_answers_as_memory_and_as_the_same_model_without_it(
    data_file: Path, tmp_path: Path, checkpoint: Path
) -> None:
    outcome = run_evaluation(
        config(
            data_file,
            tmp_path,
            system=["mlmf", "no_memory", "full_context"],
            checkpoint=str(checkpoint),
            answer_model="checkpoint",
        )
    )
    memory, without, everything = outcome.results
    assert [entry["n"]["failed"] for entry in outcome.results] == [0, 0, 0]
    # with memory or without, nothing but the question is in the prompt
    assert memory["usage"]["tokens_read"] == without["usage"]["tokens_read"] < everything["usage"]["tokens_read"]
    assert sum(memory["usage"]["gates"].values()) == pytest.approx(1, abs=1e-3)
    assert memory["keys"]["raw"]["scores"]["evidence"]["turns"] > 0
    assert memory["settings"]["0"]["checkpoint_sha256"] == without["settings"]["0"]["checkpoint_sha256"] is not None


def test_a_checkpoint_on_a_local_base_model_is_told_where_that_is(data_file: Path, tmp_path: Path) -> None:
    base = tmp_path / "models" / "my-base"
    tiny_model("llama").save_pretrained(base)
    tiny_tokenizer().save_pretrained(base)
    saved = tmp_path / "saved"
    MLMFModel.from_base(str(base), MLMFConfig(base_model=str(base), c_s=8, node_tokens=8)).save_pretrained(saved)
    settings = {"system": ["mlmf", "no_memory"], "checkpoint": str(saved), "answer_model": "checkpoint", "limit": 2}
    with pytest.raises(
        UserError, match=r"base model 'my-base' cannot be found; say where it is with --checkpoint_base"
    ):
        run_evaluation(config(data_file, tmp_path, **settings))
    outcome = run_evaluation(config(data_file, tmp_path, checkpoint_base=str(base), **settings))
    assert [entry["n"]["failed"] for entry in outcome.results] == [0, 0]
    assert {entry["settings"]["0"]["checkpoint_base"] for entry in outcome.results} == {"my-base"}


def test_a_folder_that_is_no_checkpoint_is_refused(data_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no checkpoint at .*config\.json is missing"):
        run_evaluation(config(data_file, tmp_path, system="mlmf", checkpoint=str(tmp_path)))


def test_a_retrained_checkpoint_is_another_setting(tmp_path: Path) -> None:
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    weights.parent.mkdir()
    digests = []
    for content in (b"one", b"two", b"one"):
        weights.write_bytes(content)
        (tmp_path / "README.md").write_text(f"card {len(digests)}")
        digests.append(folder_sha256(tmp_path))
    assert digests[0] == digests[2] != digests[1]


def test_chosen_conversations_are_the_whole_run(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    outcome = run_evaluation(config(data_file, tmp_path, system="no_memory", conversations=["ben"]))
    assert outcome.results[0]["n"] == {"original": 8, "effective": 4, "answers": 4, "failed": 0}
    assert (tmp_path / "out" / "report.md").read_text().startswith("SMOKE, n=4 of 8\n")
    samples = read_samples(tmp_path / "out" / "jsonl" / "no_memory" / "seed_0" / "samples.jsonl")
    assert {sample.conversation_id for sample in samples} == {"ben"}


def test_a_limit_runs_across_conversations(conversation: Conversation) -> None:
    silent = make_conversation("silent", [])
    other = make_conversation("ben", conversation.questions)
    data = LoadedData("jsonl", (silent, conversation, other), "mine.jsonl", "0", is_pinned=False)

    def asked(wanted: list[str] | None, limit: int | None) -> list[tuple[str, int]]:
        return [(c.id, len(c.questions)) for c in select_questions(data, wanted, limit)]

    assert asked(None, None) == [("anna", 4), ("ben", 4)]
    assert asked(None, 5) == [("anna", 4), ("ben", 1)]
    assert asked(None, 4) == [("anna", 4)]
    assert asked(["ben"], 3) == [("ben", 3)]
    with pytest.raises(UserError, match=r'mine\.jsonl: task jsonl has no questions to ask; add "questions"') as error:
        asked(["silent"], None)
    assert "--probes" not in str(error.value)


def script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "evaluate.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_script_on_locomo_end_to_end(locomo: LoadedData, tmp_path: Path) -> None:
    run = script(
        "--system", "no_memory", "--tasks", "locomo", "--limit", "5", "--base_model", "tiny-random",
        "--output_dir", tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "SMOKE, n=5 of 1,986" in run.stdout
    assert "always abstain" in run.stdout
    assert len(read_samples(tmp_path / "locomo" / "no_memory" / "seed_0" / "samples.jsonl")) == 5


def test_the_script_says_what_is_wrong_in_one_line() -> None:
    run = script("--task", "jsonl", "--base_model", "tiny-random")
    assert run.returncode == 2
    assert run.stderr.startswith("error: data_file: task 'jsonl' needs one")
    assert "Traceback" not in run.stderr


def test_help_comes_without_loading_torch() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['evaluate.py', '--help']\n"
        "try:\n    runpy.run_path('evaluate.py', run_name='__main__')\n"
        "except SystemExit as stop:\n    assert stop.code == 0 and 'torch' not in sys.modules, sorted(sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "python evaluate.py --system mlmf" in run.stdout
    assert "--window_tokens" in run.stdout
