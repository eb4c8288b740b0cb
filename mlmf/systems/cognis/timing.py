"""How long each stage of a search takes."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

PERCENTILES = (50, 95, 99)


class StageTimes:
    """Seconds by stage, of the last searches; several threads may time at once."""

    def __init__(self, kept: int = 10_000) -> None:
        """Know no time yet, and at most ``kept`` of each stage later."""
        self.seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=kept))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block."""
        started = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - started)

    def table(self) -> dict[str, dict[str, float]]:
        """Milliseconds of each stage by percentile: ``{"words": {"p50": 0.4, "p95": 1.1, "p99": 2.0}}``."""
        return {
            name: {f"p{share}": float(np.percentile(times, share)) * 1000 for share in PERCENTILES}
            for name, times in self.seconds.items()
        }
