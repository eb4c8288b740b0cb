"""The page and its plots: what they show, that nothing is fetched, and that no text of the data becomes markup."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlmf.evaluation.html import is_figure, is_right
from mlmf.evaluation.plots import draw_plots
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Answer
from tests.evaluation.conftest import SpySystem, config

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


def test_the_page_holds_tables_plots_and_every_answer(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    attack = "</script><script>alert(1)</script>"
    spy.answers["Question 1?"] = Answer(
        "a cat", recalled=("S1:0", "S0:0"), recalled_lines=("[9 May 2023] Anna: hi", attack)
    )
    run_evaluation(config(data_file, tmp_path))
    page = (tmp_path / "out" / "report.html").read_text()
    assert attack not in page
    # namespaces and licences inside the drawings are names, not addresses anything is loaded from
    outside = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|url\(|@import""", outside)
    assert page.count("<svg") == 3
    assert "currentColor" in page
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data = json.loads(found[1])
    # each question once, with the answers of both systems
    assert [len(question["answers"]) for question in data["questions"]] == [2] * 8
    question = next(one for one in data["questions"] if one["question"] == "Question 1?")
    assert (question["gold"], question["evidence"], question["category"]) == ("a cat", ["S1:0"], "category 2")
    answer = question["answers"][0]
    assert (answer["system"], answer["text"], answer["right"], answer["found"]) == ("no_memory", "a cat", True, 1)
    assert [(data["lines"][number], bool(hit)) for number, hit in answer["lines"]] == [
        ("[9 May 2023] Anna: hi", True),
        (attack, False),
    ]
    assert dict(zip(data["metrics"]["jsonl"], answer["scores"], strict=True))["f1"] == 1.0
    trap = next(one for one in data["questions"] if one["trap"])
    assert [value is None for value in trap["answers"][0]["scores"]] == [
        name not in ("f1", "f1_robust") for name in data["metrics"]["jsonl"]
    ]
    assert '<td class="text">always abstain</td>' in page


def test_an_answer_asked_once_stands_beside_those_after_the_last_period(tmp_path: Path, spy: SpySystem) -> None:
    settings = {"system": "no_memory", "tasks": "locco", "data_file": None, "conversations": ["2"]}
    run_evaluation(config(tmp_path, tmp_path, **settings, retention="balanced"))
    outcome = run_evaluation(config(tmp_path, tmp_path, **(settings | {"system": "recent_window"})))
    assert outcome.report_path is not None
    page = outcome.report_path.with_suffix(".html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    answers: dict[int, set[int]] = {}
    for question in json.loads(found[1])["questions"]:
        answers.setdefault(question["period"], set()).add(len(question["answers"]))
    assert answers == {1: {1}, 2: {1}, 3: {1}, 4: {1}, 5: {1}, 6: {2}}


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        ("0.135", True), ("-", True), ("< 0.001", True), ("-0.09..-0.07", True), ("100.0 %", True), ("+0.5", True),
        ("0.998 @ 1", True), ("0.75 (n=1,036)", True), ("0.1 ± 0.2", True), ("1 multi-hop", False),
        ("always abstain", False), ("2026-11-30", True), ("400 tokens", False), ("", False),
    ],
)  # fmt: skip
def test_columns_of_words_are_told_from_columns_of_figures(cell: str, is_number: bool) -> None:
    assert is_figure(cell) is is_number


def test_questions_about_one_history_are_one_point_of_the_growth_plots(
    data_file: Path, tmp_path: Path, spy: SpySystem
) -> None:
    results = run_evaluation(config(data_file, tmp_path, system="no_memory")).results
    cost = {"key": "raw", "status": "ok", "seconds": 1.0}
    rows = [{**cost, "tokens_history": 100, "tokens_read": read} for read in (1, 2, 3)]
    rows.append({**cost, "tokens_history": 300, "tokens_read": 10})
    plots = draw_plots(results, {("jsonl", "no_memory"): rows})
    (line,) = plots["jsonl-growth-tokens_read"].axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([100, 300], [2, 10])


def test_a_run_over_periods_draws_what_is_kept(tmp_path: Path, spy: SpySystem) -> None:
    settings = {
        "system": "no_memory",
        "tasks": "locco",
        "data_file": None,
        "retention": "balanced",
        "conversations": ["2"],
    }
    run_evaluation(config(tmp_path, tmp_path, **settings))
    names = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert {"locco-raw-triangle.svg", "locco-raw-retention.png"} <= names
    triangle = ElementTree.parse(tmp_path / "out" / "plots" / "locco-raw-triangle.svg")
    words = [element.text for element in triangle.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("0.00") == 21
    assert "asked about period" in words


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"status": "ok", "is_trap": False, "abstained": False, "metrics": {"success": 1.0}}, True),
        ({"status": "ok", "is_trap": False, "abstained": True, "metrics": {"success": 0.0}}, False),
        ({"status": "ok", "is_trap": True, "abstained": True, "metrics": {}}, True),
        ({"status": "ok", "is_trap": True, "abstained": False, "metrics": {}}, False),
        ({"status": "error", "is_trap": True, "abstained": False, "metrics": {}}, False),
    ],
)
def test_what_counts_as_right(answer: dict[str, object], expected: bool) -> None:
    assert is_right(answer) is expected
