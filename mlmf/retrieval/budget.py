"""Which of the found texts are shown, within a number of tokens."""

from __future__ import annotations

from collections.abc import Iterable


def within_budget(costs: Iterable[int], budget: int) -> list[int]:
    """Go through texts, best first, and take each that still fits.

    Args:
        costs: tokens of each text, best first.
        budget: tokens of all that are taken together.

    Returns:
        Positions of the taken ones, best first; a text that is too long does not keep a shorter one out.
    """
    taken = []
    for position, cost in enumerate(costs):
        if cost <= budget:
            budget -= cost
            taken.append(position)
    return taken
