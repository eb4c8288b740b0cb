"""Every metric of one answer at once, under the names that results and tables use."""

from __future__ import annotations

from mlmf.abstention import is_abstention
from mlmf.data.longmemeval import TYPE_NAMES
from mlmf.evaluation.consistency import Rubric
from mlmf.evaluation.official import f1_official, f1_score
from mlmf.evaluation.overlap import bleu1, exact_match, f1_set, rouge1, rouge_l
from mlmf.evaluation.robust import contains_answer, f1_robust
from mlmf.types import Question

LEXICAL = ("f1_robust", "f1_set", "bleu1", "rouge1", "rougeL", "em", "success")
"""The metrics of an answerable question beside the main one."""

_RUBRIC_OF_TYPE: dict[str, Rubric] = {
    "single-session-preference": "preference",
    "temporal-reasoning": "off_by_one",
    "knowledge-update": "newest",
}
_RUBRICS = {number: _RUBRIC_OF_TYPE[name] for number, name in TYPE_NAMES.items() if name in _RUBRIC_OF_TYPE}


def main_metric(task: str) -> str:
    """Name of the F1 that a task is scored by: LoCoMo's official one, elsewhere its plain form without categories."""
    return "f1_official" if task == "locomo" else "f1"


def token_f1(prediction: str, gold: str) -> float:
    """Stemmed token F1 rounded to three decimals: the metric of LOCCO's probes and of people's own questions."""
    return round(f1_score(prediction, gold), 3)


def measure(
    task: str, prediction: str, question: Question, *, abstained: bool, success_threshold: float = 0.5
) -> dict[str, float]:
    """Score one answer, each metric from 0 to 1.

    Args:
        task: decides the main metric, :func:`main_metric`.
        prediction: what the system said.
        question: the gold side.
        abstained: whether the answer declines to answer; what a trap asks for outside LoCoMo.
        success_threshold: main metric from which an answer counts as a success.

    Returns:
        The main metric; for an answerable question also :data:`LEXICAL`, for a trap also ``f1_robust``, which takes any
        wording of an abstention.
    """
    gold, name = question.answer, main_metric(task)
    is_official = task == "locomo" and question.category is not None
    if question.is_trap or gold is None:
        main = f1_official(prediction, gold, question.category or 0) if is_official else float(abstained)
        return {name: main, "f1_robust": float(abstained)}
    main = f1_official(prediction, gold, question.category or 0) if is_official else token_f1(prediction, gold)
    return {
        name: main,
        "f1_robust": f1_robust(prediction, gold, question.category if is_official else None),
        "f1_set": f1_set(prediction, gold),
        "bleu1": bleu1(prediction, gold),
        "rouge1": rouge1(prediction, gold),
        "rougeL": rouge_l(prediction, gold),
        "em": float(exact_match(prediction, gold)),
        "success": float(main >= success_threshold),
    }


def rubric(task: str, question: Question) -> Rubric:
    """What an understanding judge goes by: in LongMemEval that depends on the type of the question, as its paper has it."""
    return _RUBRICS.get(question.category or 0, "reference") if task == "longmemeval" else "reference"


def has_lure(question: Question) -> bool:
    """Whether the question names a wrong answer to fall for."""
    return question.lure is not None and not is_abstention(question.lure)


def is_lured(prediction: str, question: Question, *, threshold: float = 0.5) -> bool:
    """Whether an answer is the wrong one that the question names: as a whole, or robust F1 of at least ``threshold``."""
    lure = question.lure
    if lure is None or not has_lure(question):
        return False
    return contains_answer(prediction, lure) or f1_robust(prediction, lure) >= threshold
