"""A user's LongMemEval file through the whole harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlmf.config.llm import JudgeSettings
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Answer, Session
from tests.data.longmemeval_items import save
from tests.evaluation.conftest import SpySystem, config
from tests.llm.scripted_server import completion, scripted_server


def test_types_abstention_and_finding_by_session(tmp_path: Path, spy: SpySystem) -> None:
    spy.answers = {
        "What colour was the bike I bought?": Answer("green", recalled=("S0:0", "S1:1", "S1:0")),
        "Which bike do I ride?": Answer("the green one", recalled=("S0:0",)),
        "What colour was the car I bought?": Answer("I don't know", recalled=("S0:0",)),
    }
    file = save(tmp_path / "longmemeval_s.json")
    outcome = run_evaluation(config(file, tmp_path, system="no_memory", tasks="longmemeval"))
    (entry,) = outcome.results
    scores = entry["keys"]["raw"]["scores"]
    assert (scores["answerable_f1"]["n"], scores["abstention_on_traps"]) == (3, {"mean": 1.0, "n": 1})
    assert [(one["name"], one["n"]) for one in scores["categories"]] == [
        ("single-session-user", 1), ("multi-session", 1), ("knowledge-update", 1),
    ]  # fmt: skip
    # the trap's session was found and does not count; one question has evidence that is not in its history
    found = scores["evidence"]
    assert (found["n"], found["n_without"]) == (2, 1)
    assert (found["any_at"]["1"], found["any_at"]["5"], found["all_at"]["5"]) == (0.5, 1.0, 0.5)
    # the session is at rank 2 though its turn is at rank 3
    assert scores["categories"][0]["evidence"]["mrr"] == 1 / 3
    assert scores["categories"][0]["evidence"]["sessions"]["mrr"] == 1 / 2
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| no_memory | 1 single-session-user | 1.000 | 1.000 | 1.000 | 1.000 |" in report
    assert "Unpinned data: longmemeval_s.json" in report


def test_a_session_after_the_question_is_never_observed(tmp_path: Path, spy: SpySystem) -> None:
    file = save(tmp_path / "s.json")
    run_evaluation(config(file, tmp_path, system="no_memory", tasks="longmemeval", conversations=["q-count"]))
    heard = [call.turns[0].text for call in spy.calls if isinstance(call, Session)]
    assert heard == ["I bought a green bike today."]


def test_verdicts_are_told_by_type_and_never_of_what_was_not_said(tmp_path: Path, spy: SpySystem) -> None:
    spy.answers = {"How many bikes have I had?": Answer("two")}
    file = save(tmp_path / "longmemeval_s.json")

    def judge(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return completion("CORRECT" if '"two"' in request["messages"][-1]["content"] else "WRONG")

    with scripted_server(judge) as script:
        settings = JudgeSettings(model="m", base_url=script.url)
        run_evaluation(
            config(file, tmp_path, system="no_memory", tasks="longmemeval", judge="llm", judge_llm=settings)
        )
    asked = " ".join(request["messages"][-1]["content"] for request in script.requests)
    assert len(script.requests) == 3
    assert "car" not in asked  # whether the trap is refused is read by rules
    table = (tmp_path / "out" / "report.md").read_text().split("longmemeval: J by category:")[1].strip()
    header, _, row, *_ = table.splitlines()
    assert header == "| system | 1 single-session-user | 4 multi-session | 6 knowledge-update | macro |"
    assert row == "| no_memory | 0.000 (n=1) | 1.000 (n=1) | 0.000 (n=1) | 0.333 |"
