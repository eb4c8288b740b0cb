"""The page and its plots: what they show, that nothing is fetched, and that no text of the data becomes markup."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlmf.evaluation.html import is_right
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
    assert len(data["rows"]) == 16
    row = next(row for row in data["rows"] if row["question"] == "Question 1?")
    assert (row["answer"], row["right"], row["evidence"], row["found"]) == ("a cat", True, ["S1:0"], 1)
    assert [(data["lines"][number], hit) for number, hit in row["lines"]] == [
        ("[9 May 2023] Anna: hi", True),
        (attack, False),
    ]
    assert '<td class="text">always abstain</td>' in page


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
