"""Means with their denominators, and intervals that resample whole conversations.

Questions about one conversation stand and fall together, so resampling questions would understate an interval. A mean over
nothing is ``None``, never 0 and never NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, binomtest, bootstrap, ttest_rel

RESAMPLES = 2_000
Statistic = Callable[[NDArray[np.intp]], NDArray[np.float64]]


def mean(values: Iterable[float]) -> dict[str, Any]:
    """``{"mean", "n"}`` of some numbers."""
    listed = [float(value) for value in values]
    return {"mean": sum(listed) / len(listed) if listed else None, "n": len(listed)}


def spread(values: Mapping[str, float | None]) -> dict[str, Any]:
    """``{"values", "mean", "sd"}`` of one figure under several seeds; the standard deviation is the sample's (n - 1)."""
    known = [value for value in values.values() if value is not None]
    return {
        "values": dict(values),
        "mean": mean(known)["mean"],
        "sd": float(np.std(known, ddof=1)) if len(known) > 1 else None,
    }


def proportion(successes: int, n: int) -> dict[str, Any]:
    """``{"mean", "n", "ci95"}`` of a share of independent trials, with Wilson's interval."""
    interval = binomtest(successes, n).proportion_ci(method="wilson") if n else None
    return {
        "mean": successes / n if n else None,
        "n": n,
        "ci95": None if interval is None else [float(interval.low), float(interval.high)],
    }


def cluster_interval(n_clusters: int, statistic: Statistic, seed: int) -> list[float] | None:
    """95 % percentile bootstrap interval of a statistic of whole clusters.

    Args:
        n_clusters: how many there are, conversations or users.
        statistic: from the numbers of the resampled clusters, ``(..., n_clusters)``, to one value each, ``(...)``.
        seed: of the resampling.

    Returns:
        Both ends; ``None`` for fewer than two clusters, or where some resample leaves the statistic undefined.
    """
    return None if n_clusters < 2 else _ends(_resampled(n_clusters, statistic, seed))


def _resampled(n_clusters: int, statistic: Statistic, seed: int) -> Any:
    """The bootstrap result of scipy: interval, and the distribution it is read from."""

    def vectorised(clusters: NDArray[np.intp], axis: int = -1) -> NDArray[np.float64]:
        return statistic(np.moveaxis(clusters, axis, -1))

    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        # a statistic that is the same in every resample has an interval of no width, and that is no fault
        warnings.simplefilter("ignore", DegenerateDataWarning)
        return bootstrap(
            (np.arange(n_clusters),),
            vectorised,
            vectorized=True,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(seed),
        )


def _ends(result: Any) -> list[float] | None:
    low, high = (float(end) for end in result.confidence_interval)
    return [low, high] if np.isfinite(low) and np.isfinite(high) else None


def mean_interval(values: Sequence[tuple[str, float]], seed: int) -> list[float] | None:
    """Interval of the mean of ``(cluster, value)`` pairs; every value weighs the same, whatever its cluster's size."""
    n_clusters, statistic = _mean_of_clusters(values)
    return cluster_interval(n_clusters, statistic, seed)


def paired_difference(pairs: Sequence[tuple[str, float, float]], seed: int) -> dict[str, Any]:
    """Two systems on the same questions.

    Args:
        pairs: cluster (conversation), score of the first and of the second system, one per question.
        seed: of the resampling.

    Returns:
        ``n``, ``first`` and ``second`` (means), ``difference`` (second minus first) with ``ci95`` from a bootstrap over
        whole conversations and ``p_bootstrap`` (two-sided: twice the smaller share of resampled differences on one side
        of 0, one resample added so that it is never 0); ``t`` and ``p_t`` of the paired t-test over questions, which takes
        them for independent; ``effect_size``: Cohen's d of paired differences, mean over standard deviation. What is
        undefined is ``None``: the bootstrap of one conversation, the t-test of differences that are all the same.
    """
    first, second = (np.array([pair[side] for pair in pairs], dtype=float) for side in (1, 2))
    differences = second - first
    n_clusters, statistic = _mean_of_clusters([(pair[0], pair[2] - pair[1]) for pair in pairs])
    interval = p_bootstrap = None
    if n_clusters > 1:
        result = _resampled(n_clusters, statistic, seed)
        interval = _ends(result)
        drawn = result.bootstrap_distribution
        smaller = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0))
        p_bootstrap = min(1.0, 2 * (smaller + 1) / (len(drawn) + 1))
    deviation = float(differences.std(ddof=1)) if len(pairs) > 1 else 0.0
    test = ttest_rel(second, first) if deviation > 0 else None
    return {
        "n": len(pairs),
        "clusters": n_clusters,
        "first": float(first.mean()),
        "second": float(second.mean()),
        "difference": float(differences.mean()),
        "ci95": interval,
        "p_bootstrap": p_bootstrap,
        "t": None if test is None else float(test.statistic),
        "p_t": None if test is None else float(test.pvalue),
        "effect_size": float(differences.mean()) / deviation if deviation > 0 else None,
    }


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of several p-values of one family; those that do not exist stay ``None``."""
    # here, not at the top: it loads pandas, and only a comparison of several systems needs it
    from statsmodels.stats.multitest import multipletests

    known = [p for p in p_values if p is not None]
    corrected = iter(multipletests(known, method="holm")[1] if known else ())
    return [None if p is None else float(next(corrected)) for p in p_values]


def _mean_of_clusters(values: Sequence[tuple[str, float]]) -> tuple[int, Statistic]:
    """How many clusters there are, and the mean over the values of those that are drawn."""
    clusters: dict[str, list[float]] = {}
    for cluster, value in values:
        clusters.setdefault(cluster, []).append(value)
    sums = np.array([sum(members) for members in clusters.values()])
    counts = np.array([float(len(members)) for members in clusters.values()])
    return len(clusters), lambda chosen: sums[chosen].sum(axis=-1) / counts[chosen].sum(axis=-1)
