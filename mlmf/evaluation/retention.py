"""How much of each period is still answered after the later ones: the triangle A[t, p] and what follows from it.

After each of six periods every question about the periods so far is asked, with nothing of the future observed. A[t, p]
is the mean over the questions about period p of a measure of their answers after period t. Its figures::

    R6                  A[6,1] / A[1,1]
    mean retention      mean over p = 1..5 of A[6,p] / A[p,p]
    average forgetting  mean over p = 1..5 of max over t of A[t,p], minus A[6,p]
    backward transfer   mean over p = 1..5 of A[6,p] - A[p,p]

A ratio hides a bad start, so it never stands without its two numbers, and it is null where its denominator is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmf.data.locco import PERIODS
from mlmf.evaluation.scored import Scored, false_memory, over_refusal
from mlmf.evaluation.statistics import cluster_interval, spread

Triangle = NDArray[np.float64]
Cells = NDArray[np.float64]
Figure = Callable[[Triangle], NDArray[np.float64]]
Measure = Callable[[Scored], float | None]
"""Of an answer; ``None`` leaves it out, as a failed one."""


def retention(answers: Sequence[Scored], periods: dict[tuple[str, int], int], *, seed: int) -> dict[str, Any]:
    """Everything about retention of one system.

    Args:
        answers: one per question and period it was asked after, failed ones included.
        periods: the period of each question by conversation and index.
        seed: of the bootstrap over users.

    Returns:
        ``consistency``, ``J`` (null without an LLM judge) and ``f1``, each as :func:`figures` gives it, over the
        answerable questions; ``by_period``: for
        each t ``false_memory`` on traps and ``over_refusal`` beside it.
    """
    facts = [answer for answer in answers if not answer.question.is_trap]
    return {
        "consistency": figures(facts, periods, _consistent, seed=seed),
        "J": figures(facts, periods, _judged, seed=seed) if any(answer.judged for answer in facts) else None,
        "f1": figures(facts, periods, lambda answer: answer.main, seed=seed),
        "by_period": [
            {"t": t, "false_memory": false_memory(now), "over_refusal": over_refusal(now)}
            for t in range(1, PERIODS + 1)
            for now in [[answer for answer in answers if answer.sample.period == t]]
        ],
    }


def figures(
    facts: Sequence[Scored], periods: dict[tuple[str, int], int], measure: Measure, *, seed: int
) -> dict[str, Any]:
    """The triangle of one measure and its figures, with bootstrap intervals over users.

    Returns:
        ``A`` and ``n``, lists of rows t = 1..6, row t with the entries p = 1..t (``null`` where nothing was asked);
        ``A_zero_filled`` with failed questions as 0; and ``r6``, ``mean_retention``, ``average_forgetting``,
        ``backward_transfer``, each ``{"value", "ci95"}``, ``r6`` also with ``numerator`` and ``denominator``.
    """
    triangle, totals, counts, asked = _triangle(facts, periods, measure)

    def described(figure: Figure) -> dict[str, Any]:
        interval = cluster_interval(
            len(totals),
            lambda chosen: figure(_ratio(totals[chosen].sum(axis=-3), counts[chosen].sum(axis=-3))),
            seed,
        )
        return {"value": _finite(float(figure(triangle))), "ci95": interval}

    found = {name: described(figure) for name, figure in _FIGURES.items()}
    found["r6"] |= {"numerator": _finite(triangle[-1, 0]), "denominator": _finite(triangle[0, 0])}
    return {
        "A": _rows(triangle),
        "n": [[int(counts[:, t, p].sum()) for p in range(t + 1)] for t in range(PERIODS)],
        "A_zero_filled": _rows(_ratio(totals.sum(axis=0), asked.sum(axis=0))),
        **found,
    }


def figures_over_seeds(answers: Sequence[Scored], periods: dict[tuple[str, int], int]) -> dict[str, Any]:
    """The spread over seeds of the figures of consistent answers.

    Args:
        answers: as :func:`retention` takes them.
        periods: the period of each question by conversation and index.

    Returns:
        By name what :func:`mlmf.evaluation.statistics.spread` gives.
    """
    facts = [answer for answer in answers if not answer.question.is_trap]
    by_seed = {
        str(seed): _triangle([answer for answer in facts if answer.sample.seed == seed], periods, _consistent)[0]
        for seed in sorted({answer.sample.seed for answer in facts})
    }
    return {
        name: spread({seed: _finite(float(figure(triangle))) for seed, triangle in by_seed.items()})
        for name, figure in _FIGURES.items()
    }


def _triangle(
    facts: Sequence[Scored], periods: dict[tuple[str, int], int], measure: Measure
) -> tuple[Triangle, Cells, Cells, Cells]:
    """A[t, p], and by user, t and p ``(users, 6, 6)``: the sum of the measure, over how many answers, how many were asked."""
    users = sorted({answer.sample.conversation_id for answer in facts})
    totals, counts, asked = (np.zeros((len(users), PERIODS, PERIODS)) for _ in range(3))
    for answer in facts:
        if answer.sample.period is None:
            raise ValueError(f"{answer.sample.id} was not asked after a period")
        period = periods[answer.sample.conversation_id, answer.sample.index]
        cell = (users.index(answer.sample.conversation_id), answer.sample.period - 1, period - 1)
        asked[cell] += 1
        value = measure(answer) if answer.sample.status == "ok" else None
        if value is not None:
            totals[cell] += value
            counts[cell] += 1
    return _ratio(totals.sum(axis=0), counts.sum(axis=0)), totals, counts, asked


def _consistent(answer: Scored) -> float:
    return float(bool(answer.consistent))


def _judged(answer: Scored) -> float | None:
    if answer.judged is None or answer.judged.is_consistent is None:
        return None
    return float(answer.judged.is_consistent)


def r6(triangle: Triangle) -> NDArray[np.float64]:
    """A[6,1] / A[1,1], of ``(..., 6, 6)``; not a number where A[1,1] is 0."""
    return _ratio(triangle[..., -1, 0], triangle[..., 0, 0])


def mean_retention(triangle: Triangle) -> NDArray[np.float64]:
    """Mean over the earlier periods p of A[6,p] / A[p,p], of ``(..., 6, 6)``; not a number where some A[p,p] is 0."""
    return np.asarray(_ratio(triangle[..., -1, :-1], _diagonal(triangle)).mean(axis=-1))


def average_forgetting(triangle: Triangle) -> NDArray[np.float64]:
    """Mean over the earlier periods p of the best A[t,p] minus A[6,p], of ``(..., 6, 6)``; never below 0."""
    # above the diagonal a period has not happened yet
    happened = np.where(np.tri(PERIODS, dtype=bool), triangle, -np.inf)[..., :, :-1]
    return np.asarray((happened.max(axis=-2) - triangle[..., -1, :-1]).mean(axis=-1))


def backward_transfer(triangle: Triangle) -> NDArray[np.float64]:
    """Mean over the earlier periods p of A[6,p] - A[p,p], of ``(..., 6, 6)``."""
    return np.asarray((triangle[..., -1, :-1] - _diagonal(triangle)).mean(axis=-1))


_FIGURES: dict[str, Figure] = {
    "r6": r6,
    "mean_retention": mean_retention,
    "average_forgetting": average_forgetting,
    "backward_transfer": backward_transfer,
}


def _diagonal(triangle: Triangle) -> NDArray[np.float64]:
    return np.diagonal(triangle, axis1=-2, axis2=-1)[..., :-1]


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """The quotient, not a number wherever the denominator is 0."""
    undefined = np.full(np.shape(denominator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def _rows(triangle: Triangle) -> list[list[float | None]]:
    return [[_finite(triangle[t, p]) for p in range(t + 1)] for t in range(PERIODS)]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
