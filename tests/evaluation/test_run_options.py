"""What may be asked of a run beside plain answers: shared folders, scoring apart, periods, keys, captions, trained data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlmf.config.llm import ChatSettings
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Answer
from tests.conftest import ModelServer
from tests.evaluation.conftest import SpySystem, config


def test_runs_of_different_systems_share_a_folder(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    run_evaluation(config(data_file, tmp_path, system="no_memory"))
    spy.answers["Question 0?"] = Answer("SECRETGOLD0")
    second = run_evaluation(config(data_file, tmp_path, system="recent_window"))
    out = tmp_path / "out"
    combined = json.loads((out / "results.json").read_text())["results"]
    assert [entry["system"] for entry in combined] == ["recent_window", "no_memory"]
    assert [entry["system"] for entry in second.results] == ["recent_window"]
    means = [entry["keys"]["raw"]["scores"]["answerable_f1"]["mean"] for entry in combined]
    assert means == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    report = (out / "report.md").read_text()
    assert "### jsonl, no_memory: 8 answers" in report
    assert "### jsonl, recent_window: 8 answers" in report
    # systems asked about different data stand in one table only with a warning
    other = tmp_path / "other.jsonl"
    other.write_text(data_file.read_text().replace("Anna", "Hanna"))
    run_evaluation(config(other, tmp_path, system="full_context"))
    assert "The systems on jsonl were asked about different data" in (out / "report.md").read_text()


def test_answers_can_be_given_first_and_scored_later(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    outcome = run_evaluation(config(data_file, tmp_path, system="no_memory", predict_only=True))
    out = tmp_path / "out"
    assert (outcome.results, outcome.report_path, outcome.exit_code) == ([], None, 0)
    assert not (out / "results.json").exists()
    spy.calls.clear()
    lenient, strict = (
        run_evaluation(config(data_file, tmp_path, system="no_memory", score_only=True, success_threshold=threshold))
        for threshold in (0.0, 1.0)
    )
    assert spy.calls == []
    found = [one.results[0]["keys"]["raw"]["scores"]["answerable"]["success"]["mean"] for one in (lenient, strict)]
    assert found == [1.0, pytest.approx(1 / 3)]
    assert lenient.results[0]["scoring"]["success_threshold"] == 0.0
    part = run_evaluation(config(data_file, tmp_path, system="no_memory", score_only=True, limit=3))
    assert part.results[0]["n"] == {"original": 8, "effective": 3, "answers": 3, "failed": 0}
    with pytest.raises(
        UserError, match=r"recent_window/seed_0/samples\.jsonl: no such file, so there is nothing to score"
    ):
        run_evaluation(config(data_file, tmp_path, system="recent_window", score_only=True))
    other = tmp_path / "other.jsonl"
    other.write_text(data_file.read_text().replace("Anna", "Hanna"))
    with pytest.raises(UserError, match=r"made under other settings \(data_sha256: "):
        run_evaluation(config(other, tmp_path, system="no_memory", score_only=True))


def test_retention_asks_after_every_period_and_goes_on_where_it_stopped(tmp_path: Path, spy: SpySystem) -> None:
    settings: dict[str, Any] = {
        "system": "no_memory", "tasks": "locco", "data_file": None, "retention": "balanced", "conversations": ["2"],
    }  # fmt: skip
    outcome = run_evaluation(config(tmp_path, tmp_path, limit=5, **settings))
    # five facts: three of the first period asked six times, two of the second five times
    assert outcome.results[0]["n"] == {"original": 352, "effective": 5, "answers": 28, "failed": 0}
    spy.calls.clear()
    outcome = run_evaluation(config(tmp_path, tmp_path, **settings))
    kinds = ["query" if isinstance(call, tuple) else "session" for call in spy.calls if call != "reset"]
    assert kinds.count("session") == 32
    found = outcome.results[0]["keys"]["raw"]
    assert [row[-1] for row in found["retention"]["consistency"]["n"]] == [3] * 6
    assert found["retention"]["split"] == "balanced"
    # the main table is about the answers at the end, each question once
    assert (found["scores"]["answerable_f1"]["n"], found["scores"]["false_memory"]["n"]) == (18, 4)
    assert outcome.results[0]["settings"]["0"]["retention"] == "balanced"
    assert "| no_memory | 0.000 | 0.000 | - |" in (tmp_path / "out" / "report.md").read_text()
    with pytest.raises(UserError, match="retention: balanced -> None"):
        run_evaluation(config(tmp_path, tmp_path, **(settings | {"retention": None})))


def trained_checkpoint(checkpoint: Path, folder: Path, **facts: Any) -> Path:
    shutil.copytree(checkpoint, folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"training": facts}))
    return folder


def test_a_checkpoint_is_not_scored_on_what_it_was_trained_on(
    data_file: Path, tmp_path: Path, checkpoint: Path, spy: SpySystem
) -> None:
    saved = str(trained_checkpoint(checkpoint, tmp_path / "saved", task="jsonl", conversation_ids=["anna", "carl"]))
    settings = {"system": "mlmf", "checkpoint": saved}
    with pytest.raises(
        UserError, match=r"was trained on anna of task jsonl.*--conversations ben\), or pass --allow_trained"
    ):
        run_evaluation(config(data_file, tmp_path, **settings))
    assert spy.calls == []
    entry = run_evaluation(config(data_file, tmp_path, conversations=["ben"], **settings)).results[0]
    assert entry["trained_on"] == {"ids": ["anna", "carl"], "scored": []}
    forced = run_evaluation(config(data_file, tmp_path, allow_trained_conversations=True, **settings))
    assert forced.results[0]["trained_on"]["scored"] == ["anna"]
    assert "was trained on 1 of the conversations it is scored on" in (tmp_path / "out" / "report.md").read_text()
    # what an earlier stage read counts too
    stages = {
        "task": "locco",
        "conversation_ids": ["4"],
        "earlier_stages": [{"task": "jsonl", "conversation_ids": ["ben"]}],
    }
    staged = str(trained_checkpoint(checkpoint, tmp_path / "staged", **stages))
    with pytest.raises(UserError, match="was trained on ben of task jsonl"):
        run_evaluation(config(data_file, tmp_path, system="mlmf", checkpoint=staged))
    # the same ids in another task are other conversations, and a base model was trained on none
    other = str(trained_checkpoint(checkpoint, tmp_path / "other", task="locomo", conversation_ids=["anna"]))
    assert run_evaluation(config(data_file, tmp_path, system="mlmf", checkpoint=other, overwrite=True)).exit_code == 0
    assert run_evaluation(config(data_file, tmp_path, system="no_memory")).results[0]["trained_on"] is None


def test_a_checkpoint_that_does_not_say_what_it_read_is_scored_and_that_is_said(
    data_file: Path, tmp_path: Path, checkpoint: Path, spy: SpySystem
) -> None:
    saved = str(trained_checkpoint(checkpoint, tmp_path / "saved", task="jsonl"))
    entry = run_evaluation(config(data_file, tmp_path, system="mlmf", checkpoint=saved)).results[0]
    assert entry["trained_on"] == {"ids": None, "scored": []}


def test_both_keys_stand_beside_each_other(locomo: LoadedData, tmp_path: Path, spy: SpySystem) -> None:
    settings = {"system": "no_memory", "tasks": "locomo", "data_file": None, "conversations": ["conv-26"]}
    outcome = run_evaluation(config(tmp_path, tmp_path, key="both", **settings))
    raw, audited = (outcome.results[0]["keys"][key] for key in ("raw", "audited"))
    assert raw["audit"] is None
    assert audited["audit"] == {"replaced_answers": 6, "excluded_questions": 9, "replaced_evidence": 12}
    assert raw["scores"]["answerable_f1"]["n"] - audited["scores"]["answerable_f1"]["n"] == 9
    assert raw["controls"]["always_abstain"]["abstention_on_traps"]["mean"] == 1.0
    report = (tmp_path / "out" / "report.md").read_text()
    assert "locomo, audited key (9 questions left out, 6 answers and evidence of 12 replaced): " in report
    lines = (tmp_path / "out" / "locomo" / "no_memory" / "scores.jsonl").read_text().splitlines()
    assert len(lines) == 199 + 190
    # the key decides about scores alone, so the same answers serve
    spy.calls.clear()
    assert list(run_evaluation(config(tmp_path, tmp_path, key="audited", **settings)).results[0]["keys"]) == [
        "audited"
    ]
    assert spy.calls == []


def test_captions_are_shown_or_not(locomo: LoadedData, tmp_path: Path, spy: SpySystem) -> None:
    settings = {"system": "no_memory", "tasks": "locomo", "data_file": None, "limit": 1}
    run_evaluation(config(tmp_path, tmp_path, **settings))
    with_captions = repr(spy.calls)
    spy.calls.clear()
    with pytest.raises(UserError, match="captions: True -> False"):
        run_evaluation(config(tmp_path, tmp_path, captions=False, **settings))
    run_evaluation(config(tmp_path, tmp_path, captions=False, overwrite=True, **settings))
    caption = "a photo of a dog walking past a wall with a painting of a woman"
    assert caption in with_captions
    assert caption not in repr(spy.calls)


def test_the_accuracy_of_the_judge_is_reported_apart(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"question": "Who?", "gold": "a cat", "answer": "the cat", "is_consistent": false}\n')
    entry = run_evaluation(config(data_file, tmp_path, system="no_memory", consistency_labels=str(labels))).results[0]
    assert entry["scoring"]["judge"] == "lexical"
    assert (entry["scoring"]["judge_accuracy"]["n"], entry["scoring"]["judge_accuracy"]["accuracy"]) == (1, 0.0)


def test_a_server_answers_for_the_text_systems(data_file: Path, tmp_path: Path, model_server: ModelServer) -> None:
    def run(**settings: Any) -> dict[str, Any]:
        llm = ChatSettings(model=model_server.model, base_url=model_server.url, tokenizer="tiny-random", **settings)
        changes = {"system": "bm25", "answer_model": "server", "llm": llm, "window_tokens": 100}
        return run_evaluation(config(data_file, tmp_path, **changes)).results[0]

    results = run(context_window=2048)
    assert results["n"] == {"original": 8, "effective": 8, "answers": 8, "failed": 0}
    assert results["settings"]["0"]["llm"]["server"] == model_server.url
    assert results["usage"]["tokens_read"] > 100  # as the server counts them, lines and question together
    assert str(tmp_path.parent) not in json.dumps(results)
    # another way of waiting is no other answer, another window is
    assert run(context_window=2048, timeout=60.0)["keys"] == results["keys"]
    with pytest.raises(UserError, match=r"made under other settings .*llm: "):
        run(context_window=1024)
