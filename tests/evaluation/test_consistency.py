"""The judge of consistency, and how its own errors are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.evaluation.consistency import LabelledAnswer, LexicalJudge, judge_accuracy, load_labels


def test_the_lexical_judge_takes_a_good_enough_f1_or_the_whole_answer() -> None:
    judge = LexicalJudge(threshold=0.6)
    assert judge.is_consistent("When?", "7 May 2023", "2023-05-07")
    assert judge.is_consistent(
        "When?", "7 May 2023", "I clearly remember that it was back on May 7th, 2023, in the rain"
    )
    assert not judge.is_consistent("When?", "7 May 2023", "May 2022")
    assert not judge.is_consistent("When?", "7 May 2023", "")


def label(answer: str, is_consistent: bool) -> LabelledAnswer:
    return LabelledAnswer(question="Which?", gold="a cat", answer=answer, is_consistent=is_consistent)


def test_a_judge_that_accepts_everything_is_seen_through() -> None:
    class Lenient:
        name = "lenient"

        def is_consistent(self, question: str, gold: str, answer: str) -> bool:
            return True

    labels = [label("cat", True), label("a cat", True), label("cats", True), label("dog", False)]
    assert judge_accuracy(Lenient(), labels) == {
        "judge": "lenient", "n": 4, "accuracy": 0.75, "n_consistent": 3, "accuracy_consistent": 1.0,
        "n_inconsistent": 1, "accuracy_inconsistent": 0.0,
    }  # fmt: skip
    assert judge_accuracy(LexicalJudge(), labels)["accuracy"] == 1.0
    assert judge_accuracy(LexicalJudge(), labels[:1])["accuracy_inconsistent"] is None


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
