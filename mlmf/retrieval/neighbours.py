"""Retrieval in context: a turn that was found brings the turns around it, as in MemMachine."""

from __future__ import annotations

from collections.abc import Sequence


def with_neighbours(found: Sequence[int], sessions: Sequence[int], count: int) -> list[int]:
    """Add the turns before and after each found one.

    Args:
        found: positions of the found turns, best first.
        sessions: the session of every turn, ``(N,)``; a neighbour is of the same session.
        count: turns wanted on either side.

    Returns:
        Positions, each once: those found, then what was said around the first, the second and so on, nearest first.
    """
    around = [
        position + sign * far
        for position in found
        for far in range(1, count + 1)
        for sign in (-1, 1)
        if 0 <= position + sign * far < len(sessions) and sessions[position + sign * far] == sessions[position]
    ]
    return list(dict.fromkeys([*found, *around]))
