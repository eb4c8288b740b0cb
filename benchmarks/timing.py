"""Two ways to do the same thing, timed against each other so that a busy machine slows both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Pair:
    """Median seconds of the two sides over the repetitions, and what their ratio is called."""

    ours: float
    theirs: float

    @property
    def speedup(self) -> float:
        """How many times faster ours is."""
        return self.theirs / self.ours

    @property
    def cost(self) -> float:
        """How many times as long ours takes."""
        return self.ours / self.theirs


def compare(ours: Callable[[], object], theirs: Callable[[], object], repeats: int, *, warm_up: bool = True) -> Pair:
    """Run both sides in turn, each first every other time, after one run that does not count."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    sides = [("ours", ours), ("theirs", theirs)]
    for number in range(0 if warm_up else 1, repeats + 1):
        for name, function in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            function()
            if number > 0:
                seconds[name].append(time.perf_counter() - began)
    return Pair(median(seconds["ours"]), median(seconds["theirs"]))
