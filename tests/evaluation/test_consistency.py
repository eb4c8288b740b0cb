"""The judge of consistency, and how its own errors are counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.evaluation.consistency import Claim, LabelledAnswer, LexicalJudge, Verdict, judge_accuracy, load_labels


def test_the_lexical_judge_takes_a_good_enough_f1_or_the_whole_answer() -> None:
    long = "I clearly remember that it was back on May 7th, 2023, in the rain"
    answers = {"2023-05-07": True, long: True, "May 2022": False, "": False}
    verdicts = LexicalJudge(threshold=0.6).judge([Claim("When?", "7 May 2023", answer) for answer in answers])
    assert verdicts == [Verdict(expected) for expected in answers.values()]


def label(answer: str, is_consistent: bool) -> LabelledAnswer:
    return LabelledAnswer(question="Which?", gold="a cat", answer=answer, is_consistent=is_consistent)


def test_a_judge_that_accepts_everything_is_seen_through() -> None:
    class Lenient:
        name = "lenient"

        def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
            return [Verdict(True) for _ in claims]

    labels = [label("cat", True), label("a cat", True), label("cats", True), label("dog", False)]
    assert judge_accuracy(Lenient(), labels) == {
        "judge": "lenient", "n": 4, "n_failed": 0, "accuracy": 0.75, "n_consistent": 3, "accuracy_consistent": 1.0,
        "n_inconsistent": 1, "accuracy_inconsistent": 0.0,
    }  # fmt: skip
    assert judge_accuracy(LexicalJudge(), labels)["accuracy"] == 1.0
    assert judge_accuracy(LexicalJudge(), labels[:1])["accuracy_inconsistent"] is None


def test_an_answer_without_a_verdict_is_counted_and_neither_right_nor_wrong() -> None:
    class Speechless:
        name = "speechless"

        def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
            return [Verdict(None, "no word") if one.answer == "cat" else Verdict(False) for one in claims]

    found = judge_accuracy(Speechless(), [label("cat", True), label("dog", False)])
    assert (found["n"], found["n_failed"], found["accuracy"], found["n_consistent"]) == (1, 1, 1.0, 0)


def test_labels_are_read_and_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    line = '{"question": "Which?", "gold": "a cat", "answer": "cat", "is_consistent": true}\n'
    path.write_text(line)
    assert load_labels(path) == [label("cat", True)]
    path.write_text(line + line.replace("true", '"yes"'))
    with pytest.raises(UserError, match=r"labels\.jsonl:2: is_consistent: .*\"yes\""):
        load_labels(path)
    path.write_text("")
    with pytest.raises(UserError, match="holds no labelled answer"):
        load_labels(path)
