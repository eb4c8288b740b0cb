"""From scored answers to the numbers of a table: every mean with its denominator, traps apart from answerable questions.

Failed questions are left out of every mean; the main figures are also given with failures counted as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from mlmf.data.locomo import ADVERSARIAL, CATEGORY_NAMES
from mlmf.evaluation.evidence import CUTOFFS, ndcg_at, recall_at, reciprocal_rank
from mlmf.evaluation.metrics import LEXICAL, main_metric
from mlmf.evaluation.scored import Scored, false_memory, over_refusal
from mlmf.evaluation.statistics import mean, mean_interval, spread


def aggregate(task: str, answers: Sequence[Scored], *, seed: int) -> dict[str, Any]:
    """Every score of one system on one task under one key.

    Args:
        task: names the categories, and tells whether the official scorer's means apply.
        answers: one per question, failed ones included.
        seed: of the bootstrap.

    Returns:
        ``metric`` (name of the main one), ``answerable_f1`` (its mean, n, 95 % interval; LoCoMo: micro mean of categories
        1 to 4), ``overall_f1`` (traps included; LoCoMo: the official micro mean of all), ``macro_f1`` (mean of the
        answerable categories' means), ``answerable`` (every metric, ``consistency`` and ``J`` over the answerable questions),
        ``categories`` (the same for each), ``abstention_on_traps``, ``false_memory``, ``over_refusal``, ``evidence`` and
        ``answer_words``. Each mean is a ``{"mean", "n"}`` pair.
    """
    scored = [one for one in answers if one.sample.status == "ok"]
    answerable = [one for one in scored if not one.question.is_trap]
    categories = _categories(task, scored)
    macro = [entry["f1"] for entry in categories if not entry["is_trap"]]
    return {
        "metric": main_metric(task),
        "answerable_f1": {
            **mean(one.main for one in answerable),
            "ci95": mean_interval([(one.sample.conversation_id, one.main) for one in answerable], seed),
            "conversations": len({one.sample.conversation_id for one in answerable}),
            "zero_filled": mean(one.main for one in answers if not one.question.is_trap)["mean"],
        },
        "overall_f1": {**mean(one.main for one in scored), "zero_filled": mean(one.main for one in answers)["mean"]},
        "macro_f1": mean(macro),
        "answerable": _every_metric(answerable),
        "categories": categories,
        "abstention_on_traps": mean(one.abstained for one in scored if one.question.is_trap),
        "false_memory": false_memory(scored),
        "over_refusal": over_refusal(scored),
        "evidence": evidence(scored),
        "answer_words": mean(len((one.sample.prediction or "").split()) for one in scored),
    }


def over_seeds(answers: Sequence[Scored]) -> dict[str, Any]:
    """The spread of the main figures over seeds.

    Returns:
        For ``answerable_f1``, ``overall_f1``, ``consistency``, ``J``, ``abstention_on_traps``, ``false_memory`` and
        ``over_refusal``: ``values`` by seed, their ``mean`` and sample standard deviation ``sd`` (``None`` for a single
        seed); and ``same_answers``, whether all seeds gave the same answers, so that the spread says nothing.
    """
    by_seed: dict[int, list[Scored]] = {}
    for one in answers:
        by_seed.setdefault(one.sample.seed, []).append(one)
    found = {
        seed: _figures([one for one in members if one.sample.status == "ok"]) for seed, members in by_seed.items()
    }
    said = [[one.sample.prediction for one in members] for members in by_seed.values()]
    names = next(iter(found.values()), {})
    return {
        **{name: spread({str(seed): values[name] for seed, values in found.items()}) for name in names},
        "same_answers": len(said) > 1 and all(one == said[0] for one in said),
    }


def _figures(scored: Sequence[Scored]) -> dict[str, float | None]:
    answerable = [one for one in scored if not one.question.is_trap]
    return {
        "answerable_f1": mean(one.main for one in answerable)["mean"],
        "overall_f1": mean(one.main for one in scored)["mean"],
        "consistency": mean(one.consistent for one in answerable if one.consistent is not None)["mean"],
        "J": (_judged(answerable) or {"mean": None})["mean"],
        "abstention_on_traps": mean(one.abstained for one in scored if one.question.is_trap)["mean"],
        "false_memory": false_memory(scored)["mean"],
        "over_refusal": over_refusal(scored)["mean"],
    }


def evidence(answers: Iterable[Scored]) -> dict[str, Any]:
    """What was recalled against what holds the answer, over the answerable questions.

    Returns:
        ``n`` and ``n_without`` (questions left out: no evidence given, or a turn that does not exist), ``recall`` of all
        that was read, ``turns`` read on average and their ``corpus_share`` (of the turns said before the question),
        ``mrr``, and by k ``recall_at`` and ``ndcg_at``.
    """
    answerable = [one for one in answers if not one.question.is_trap]
    known = [one for one in answerable if one.known_evidence]

    def average(value: Callable[[Scored], float]) -> float | None:
        return mean(map(value, known))["mean"]

    return {
        "n": len(known),
        "n_without": len(answerable) - len(known),
        "recall": average(lambda one: _recall(len(one.sample.recalled), one)),
        "turns": average(lambda one: len(one.sample.recalled)),
        "corpus_share": mean(
            len(one.sample.recalled) / one.sample.turns_history for one in known if one.sample.turns_history
        )["mean"],
        "mrr": average(lambda one: reciprocal_rank(one.sample.recalled, one.known_evidence)),
        "recall_at": {str(k): average(partial(_recall, k)) for k in CUTOFFS},
        "ndcg_at": {str(k): average(partial(_ndcg, k)) for k in CUTOFFS},
    }


def _recall(k: int, one: Scored) -> float:
    return recall_at(one.sample.recalled, one.known_evidence, k)


def _ndcg(k: int, one: Scored) -> float:
    return ndcg_at(one.sample.recalled, one.known_evidence, k)


def _every_metric(answerable: Sequence[Scored]) -> dict[str, dict[str, Any] | None]:
    means = {name: mean(one.metrics[name] for one in answerable) for name in LEXICAL}
    consistent = [one.consistent for one in answerable if one.consistent is not None]
    return {**means, "consistency": mean(consistent), "J": _judged(answerable)}


def _judged(answerable: Sequence[Scored]) -> dict[str, Any] | None:
    """``{"mean", "n", "failed"}`` of the LLM judge's verdicts; ``None`` where nothing was judged."""
    verdicts = [one.judged for one in answerable if one.judged is not None]
    given = [verdict.is_consistent for verdict in verdicts if verdict.is_consistent is not None]
    return {**mean(given), "failed": len(verdicts) - len(given)} if verdicts else None


def _categories(task: str, scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """One entry per category that occurs: LoCoMo's five, LOCCO's periods, or people's own numbers.

    Outside LoCoMo a trap carries the category of the fact it imitates, and is counted under traps alone.
    """
    official = task == "locomo"
    members: dict[int, list[Scored]] = {}
    for one in scored:
        category = one.question.category
        if category is not None and (official or not one.question.is_trap):
            members.setdefault(category, []).append(one)
    entries = []
    for category in sorted(members):
        found = members[category]
        is_trap = official and category == ADVERSARIAL
        main = mean(one.main for one in found)
        entries.append(
            {
                "category": category,
                "name": _category_name(task, category),
                "is_trap": is_trap,
                "n": main["n"],
                "f1": main["mean"],
                "metrics": None if is_trap else _every_metric(found),
            }
        )
    return entries


def _category_name(task: str, category: int) -> str:
    if task == "locomo":
        return CATEGORY_NAMES[category]
    return f"period {category}" if task.startswith("locco") else f"category {category}"
