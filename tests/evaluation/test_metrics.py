"""All metrics of one answer: which apply to which question, and what counts as falling into a trap."""

from __future__ import annotations

from typing import Any

import pytest

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.metrics import LEXICAL, has_lure, is_lured, measure, token_f1
from mlmf.types import Question


def question(answer: str | None, category: int | None = 4, **changes: Any) -> Question:
    return Question("c", 0, "Who?", answer, category, **changes)


def test_the_main_metric_of_a_question_depends_on_its_task() -> None:
    multi = question("cat, dog", 1)
    assert measure("locomo", "dog, cat", multi, abstained=False)["f1_official"] == 1.0
    assert measure("locomo", "dog", multi, abstained=False)["f1_official"] == 0.5
    assert measure("locco", "dog", multi, abstained=False)["f1"] == token_f1("dog", "cat, dog") == 0.667


def test_an_answerable_question_has_every_metric() -> None:
    found = measure("locomo", "Cats!", question("a cat"), abstained=False)
    assert set(found) == {"f1_official", *LEXICAL}
    assert (found["f1_official"], found["f1_robust"], found["f1_set"], found["em"]) == (1.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(("threshold", "success"), [(0.5, 1.0), (0.667, 1.0), (0.7, 0.0)])
def test_success_is_a_main_score_of_at_least_the_threshold(threshold: float, success: float) -> None:
    found = measure("locomo", "black cat", question("cat"), abstained=False, success_threshold=threshold)
    assert (found["f1_official"], found["success"]) == (0.667, success)


def test_a_trap_asks_for_an_abstention() -> None:
    trap = question(None, 2, is_trap=True)
    assert measure("locco", "dunno", trap, abstained=True) == {"f1": 1.0, "f1_robust": 1.0}
    assert measure("locco", "a cat", trap, abstained=False) == {"f1": 0.0, "f1_robust": 0.0}
    # LoCoMo's own scorer knows two phrases, whatever else was recognised as a refusal
    adversarial = question("No", 5, is_trap=True)
    assert measure("locomo", "I don't know", adversarial, abstained=True) == {"f1_official": 0.0, "f1_robust": 1.0}


def test_a_lure_is_hit_by_the_wrong_answer_and_by_nothing_else() -> None:
    trap = question(None, 5, is_trap=True, lure="self-care is important")
    assert is_lured("She realised that self-care is important.", trap)
    assert is_lured("self-care important", trap)
    assert not is_lured("Not mentioned", trap)
    assert not is_lured("a cat", trap)
    assert not has_lure(question(None, 5, is_trap=True, lure="Not mentioned"))
    assert not is_lured("Not mentioned", question(None, 5, is_trap=True, lure="Not mentioned"))


def test_two_of_locomos_traps_name_an_abstention_as_the_wrong_answer(locomo: LoadedData) -> None:
    traps = [q for chat in locomo.conversations for q in chat.questions if q.category == 5]
    assert len(traps) == 446
    assert [q.id for q in traps if not has_lure(q)] == ["conv-30#79", "conv-30#103"]
