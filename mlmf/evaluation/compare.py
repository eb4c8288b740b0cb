"""Is one system better than another, on the same questions? Paired tests, corrected for how many were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from mlmf.data.locco import PERIODS
from mlmf.evaluation.statistics import holm, paired_difference

Row = Mapping[str, Any]
Scores = dict[tuple[str, int], dict[int, float]]
"""Main metric by question and seed."""
MEASURES: dict[str, Callable[[Row], bool]] = {
    "answerable_f1": lambda row: not row["is_trap"],
    "overall_f1": lambda row: True,
    "traps_f1": lambda row: bool(row["is_trap"]),
}
"""What is compared, each the mean of the task's main metric, and the questions it is over."""


@dataclass(frozen=True)
class Run:
    """One system on one task, as it lies in a folder."""

    label: str
    """What comparisons call it."""
    results: Mapping[str, Any]
    answers: Sequence[Row]
    """As :func:`mlmf.evaluation.folder.read_answers` gives them."""

    @property
    def asked(self) -> tuple[str, str | None, str | None]:
        """Task, data and questions: only runs that agree in these can be compared."""
        data = self.results["data"]
        return self.results["task"], data["sha256"], data["probes_sha256"]


@dataclass(frozen=True)
class Comparisons:
    """All the paired tests of a folder, each as :func:`compare_runs` gives it."""

    pairs: list[dict[str, Any]]
    """Every two systems."""
    ablations: list[dict[str, Any]]
    """Each variant of the memory against the full one."""


def compare_runs(runs: Sequence[Run], seed: int, *, against: str | None = None) -> list[dict[str, Any]]:
    """Compare every two runs that were asked the same, under every key both have.

    Args:
        runs: in the order their differences are taken, the second of a pair minus the first.
        seed: of the bootstrap.
        against: label of a run; only pairs with it first are compared, and corrected for.

    The score of a question is its mean over seeds. Questions that failed in either run are left out, as are answers before
    the last period.

    Returns:
        One entry per task, key, measure and pair: ``task``, ``key``, ``measure``, ``systems`` (the labels), everything
        :func:`mlmf.evaluation.statistics.paired_difference` gives, ``p_seeds`` (paired t-test over the means of the seeds
        that both have; ``None`` for a single one), and ``p_bootstrap_holm`` and ``p_t_holm``, corrected over the pairs of
        the same task, key and measure.
    """
    entries: list[dict[str, Any]] = []
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        for key in run.results["keys"]:
            groups.setdefault((*run.asked, key), []).append(run)
    for (*_, key), members in groups.items():
        for measure in MEASURES:
            pairs = [
                found
                for first, second in combinations(members, 2)
                if against in (None, first.label)
                and (found := _compare(first, second, key, measure, seed)) is not None
            ]
            for test in ("p_bootstrap", "p_t"):
                for entry, corrected in zip(pairs, holm([entry[test] for entry in pairs]), strict=True):
                    entry[f"{test}_holm"] = corrected
            entries += pairs
    return entries


def _compare(first: Run, second: Run, key: str, measure: str, seed: int) -> dict[str, Any] | None:
    scores = [_scores(run, key, measure) for run in (first, second)]
    shared = [question for question in scores[0] if question in scores[1]]
    if not shared:
        return None
    one, other = scores
    pairs = [(question[0], _over_seeds(one[question]), _over_seeds(other[question])) for question in shared]
    seeds = [value for value in first.results["seeds"] if value in second.results["seeds"]]
    by_seed = [
        (str(value), _mean_of(one, shared, value), _mean_of(other, shared, value))
        for value in seeds
        if all(value in found[question] for found in scores for question in shared)
    ]
    return {
        "task": first.results["task"],
        "key": key,
        "measure": measure,
        "systems": [first.label, second.label],
        **paired_difference(pairs, seed),
        "p_seeds": paired_difference(by_seed, seed)["p_t"] if len(by_seed) > 1 else None,
    }


def _mean_of(scores: Scores, questions: Sequence[tuple[str, int]], seed: int) -> float:
    return float(np.mean([scores[question][seed] for question in questions]))


def _scores(run: Run, key: str, measure: str) -> Scores:
    metric = run.results["keys"][key]["scores"]["metric"]
    found: Scores = {}
    for row in run.answers:
        is_final = row["key"] == key and row["period"] in (None, PERIODS)
        if is_final and row["status"] == "ok" and MEASURES[measure](row):
            found.setdefault((row["conversation_id"], row["index"]), {})[row["seed"]] = row["metrics"][metric]
    return found


def _over_seeds(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)
