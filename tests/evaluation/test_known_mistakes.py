"""Mistakes that other harnesses were reported for, where no other test of this folder would notice them.

The numbers are those of the collection that the tests were written from: public issues and pull requests about LoCoMo,
LongMemEval and the projects that score themselves on them.
"""

from __future__ import annotations

import calendar
import json
import math
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import nltk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.data.dates import parse_date
from mlmf.data.tasks import LoadedData
from mlmf.evaluation.metrics import measure
from mlmf.evaluation.run import run_evaluation
from mlmf.evaluation.samples import read_samples
from mlmf.types import Answer, Question, format_date
from tests.evaluation.conftest import SpySystem, config


def test_evidence_ids_are_those_that_systems_report(locomo: LoadedData, tmp_path: Path) -> None:
    # 35: two spellings of the same id made every recall 0. Whoever is shown the evidence finds all of it.
    settings: dict[str, Any] = {"tasks": "locomo", "data_file": None, "limit": 12, "window_tokens": 1500}
    (entry,) = run_evaluation(config(tmp_path, tmp_path, system="oracle_evidence", **settings)).results
    found = entry["keys"]["raw"]["scores"]["evidence"]
    assert (found["n"], found["recall"], found["sessions"]["recall"]) == (12, 1.0, 1.0)


def test_reading_everything_is_shown_for_what_it_is(data_file: Path, tmp_path: Path) -> None:
    # 41: with as many places as there are sessions, retrieval is the whole conversation and its recall says nothing
    settings: dict[str, Any] = {"system": "recent_window", "window_tokens": 4000}
    (entry,) = run_evaluation(config(data_file, tmp_path, **settings)).results
    found = entry["keys"]["raw"]["scores"]["evidence"]
    assert (found["recall"], found["corpus_share"]) == (1.0, 1.0)
    rows = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert any(row.startswith("| recent_window |") and row.endswith("| 6.0 | 100.0 % | 6 | 0 |") for row in rows)


def test_nothing_of_the_gold_side_of_a_locomo_file_reaches_a_system(tmp_path: Path, spy: SpySystem) -> None:
    # 40: gold answers, search strings and model-made summaries found their way into memories
    turns = [{"speaker": "Anna", "dia_id": "D1:1", "text": "hi", "query": "SECRET 0", "re-download": "SECRET 1"}]
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Anna",
            "session_1": turns,
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_2_date_time": "1:56 pm on 9 May, 2023",
        },
        "event_summary": {"events_session_1": {"Anna": ["SECRET 2"]}},
        "observation": {"session_1_observation": {"Anna": [["SECRET 3", "D1:1"]]}},
        "session_summary": {"session_1_summary": "SECRET 4"},
        "qa": [
            {"question": "What?", "answer": "SECRET 5", "evidence": ["D1:1"], "category": 4},
            {"question": "Whose?", "adversarial_answer": "SECRET 6", "evidence": ["D1:1"], "category": 5},
        ],
    }
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([sample]))
    run_evaluation(config(file, tmp_path, tasks="locomo", allow_unknown_data=True, system="no_memory"))
    seen = repr(spy.calls)
    assert "What?" in seen and "hi" in seen
    assert not re.search("SECRET|category|evidence", seen)


@pytest.mark.parametrize("system", ["recent_window", "full_context", "oracle_evidence"])
def test_lines_carry_the_date_of_their_session_whatever_the_clock_says(
    data_file: Path, tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 18, 39, 50: memories were stamped with the moment they were read in
    monkeypatch.setattr(time, "time", lambda: datetime(2031, 1, 1).timestamp())
    run_evaluation(config(data_file, tmp_path, system=system))
    lines = {
        line
        for sample in read_samples(tmp_path / "out" / "jsonl" / system / "seed_0" / "samples.jsonl")
        for line in sample.recalled_lines
    }
    assert lines
    assert all(re.match(r"\[(8|9|10) May 2023\] Anna: ", line) for line in lines)


def test_dates_do_not_follow_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    # 57: month names of the standard library are those of the machine's language
    monkeypatch.setattr(calendar, "month_name", ["", *(f"Monat{number}" for number in range(1, 13))])
    monkeypatch.setattr(calendar, "month_abbr", ["", *(f"M{number}" for number in range(1, 13))])
    assert format_date(parse_date("1:56 pm on 8 May, 2023")) == "8 May 2023"


def test_metrics_need_no_files_that_nltk_would_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    # 44, 45: a tokenizer's data was fetched, or missing, in the middle of an evaluation
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(f"nltk looked for {arguments}")

    for module, name in ((nltk, "download"), (nltk.data, "find"), (nltk.data, "load")):
        monkeypatch.setattr(module, name, refuse)
    for task in ("locomo", "jsonl"):
        question = Question("c", 0, "Which?", "two cats, a dog", 1)
        assert measure(task, "Two cats and dogs.", question, abstained=False)["bleu1"] > 0


@settings(deadline=None)
@given(
    st.text(max_size=20) | st.sampled_from(["", " ", ".", "a the", "\u200b", "кот", "貓", "-", ","]),
    st.text(max_size=20) | st.sampled_from(["", ".", "кот", "貓", ";", ", ,"]),
    st.sampled_from([None, 1, 2, 3, 4, 5]),
    st.sampled_from(["locomo", "longmemeval", "jsonl"]),
)
def test_any_answer_to_any_gold_has_a_score(prediction: str, gold: str, category: int | None, task: str) -> None:
    # 55, 56: divisions by zero, and normalisers that leave nothing of other alphabets
    found = measure(task, prediction, Question("c", 0, "Which?", gold, category, category == 5), abstained=False)
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in found.values())


@pytest.mark.parametrize("word", ["кот", "貓", "γάτα", "chat"])
def test_words_of_every_alphabet_count(word: str) -> None:
    question = Question("c", 0, "Which?", word, 4)
    for task in ("locomo", "jsonl"):
        found = measure(task, word, question, abstained=False)
        # ROUGE is what the package rouge-score makes of it, and that knows Latin letters alone
        assert {value for name, value in found.items() if not name.startswith("rouge")} == {1.0}


def test_longer_answers_are_seen_in_the_table(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    # 25: talking much pleases judges, so how much was said stands beside every score
    spy.answers = {f"Question {number}?": Answer("a cat " * 10) for number in range(4)}
    (entry,) = run_evaluation(config(data_file, tmp_path, system="no_memory")).results
    assert entry["keys"]["raw"]["scores"]["answer_words"] == {"mean": 20.0, "n": 8}
    assert "| 20.000 | 6 |" in (tmp_path / "out" / "report.md").read_text()


def test_gold_answers_are_scored_as_published(locomo: LoadedData) -> None:
    # 13: some lack spaces; mending them in silence would be another benchmark under the same name
    conversation = next(one for one in locomo.conversations if one.id == "conv-42")
    assert "Yesteammates" in str(conversation.questions[0].answer)
