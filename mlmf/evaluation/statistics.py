"""Means with their denominators, and intervals that resample whole conversations.

Questions about one conversation stand and fall together, so resampling questions would understate an interval. A mean over
nothing is ``None``, never 0 and never NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, bootstrap

RESAMPLES = 2_000
Statistic = Callable[[NDArray[np.intp]], NDArray[np.float64]]


def mean(values: Iterable[float]) -> dict[str, Any]:
    """``{"mean", "n"}`` of some numbers."""
    listed = [float(value) for value in values]
    return {"mean": sum(listed) / len(listed) if listed else None, "n": len(listed)}


def cluster_interval(n_clusters: int, statistic: Statistic, seed: int) -> list[float] | None:
    """95 % percentile bootstrap interval of a statistic of whole clusters.

    Args:
        n_clusters: how many there are, conversations or users.
        statistic: from the numbers of the resampled clusters, ``(..., n_clusters)``, to one value each, ``(...)``.
        seed: of the resampling.

    Returns:
        Both ends; ``None`` for fewer than two clusters, or where some resample leaves the statistic undefined.
    """
    if n_clusters < 2:
        return None

    def vectorised(clusters: NDArray[np.intp], axis: int = -1) -> NDArray[np.float64]:
        return statistic(np.moveaxis(clusters, axis, -1))

    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        # a statistic that is the same in every resample has an interval of no width, and that is no fault
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(
            (np.arange(n_clusters),),
            vectorised,
            vectorized=True,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    low, high = (float(end) for end in result.confidence_interval)
    return [low, high] if np.isfinite(low) and np.isfinite(high) else None


def mean_interval(values: Sequence[tuple[str, float]], seed: int) -> list[float] | None:
    """Interval of the mean of ``(cluster, value)`` pairs; every value weighs the same, whatever its cluster's size."""
    clusters: dict[str, list[float]] = {}
    for cluster, value in values:
        clusters.setdefault(cluster, []).append(value)
    sums = np.array([sum(members) for members in clusters.values()])
    counts = np.array([float(len(members)) for members in clusters.values()])
    return cluster_interval(
        len(clusters), lambda chosen: sums[chosen].sum(axis=-1) / counts[chosen].sum(axis=-1), seed
    )
