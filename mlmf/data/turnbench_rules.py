"""What a verifier of TurnBench can check, from its words to the codes that pass.

A code is three digits from 1 to 5, blue, yellow and purple. The criteria are those of the board game Turing Machine, each
written as a short sentence such as ``BLUE < 3``, ``exactly 1 x 4`` or ``YELLOW strictly smallest``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from mlmf.errors import UserError

Code = tuple[int, int, int]
Test = Callable[[Code], bool]

COLOURS = ("BLUE", "YELLOW", "PURPLE")
CODES: tuple[Code, ...] = tuple((b, y, p) for b, y, p in product(range(1, 6), repeat=3))
"""All 125 of them, in the order of every mask."""

_COMPARE = {"<": operator.lt, "=": operator.eq, ">": operator.gt}
_PLACES = {"BLUE": (0,), "YELLOW": (1,), "PURPLE": (2,), "B": (0,), "Y": (1,), "P": (2,), "sum": (0, 1, 2)}
_EXTREMES: dict[str, Callable[[int, int], bool]] = {
    "strictly smallest": operator.lt,
    "strictly largest": operator.gt,
    "smallest or tied": operator.le,
    "largest or tied": operator.ge,
}


def _repeats(code: Code) -> int:
    return max(code.count(digit) for digit in code)


def _ascending_run(code: Code) -> int:
    """Most neighbours that count up by one: 1 2 3 has three, 1 2 5 two, 1 3 5 one."""
    ups = [after - before == 1 for before, after in pairwise(code)]
    return 3 if all(ups) else 2 if any(ups) else 1


def _run(code: Code) -> int:
    return max(_ascending_run(code), _ascending_run((code[2], code[1], code[0])))


def _evens(code: Code) -> int:
    return sum(digit % 2 == 0 for digit in code)


_NAMED: dict[str, Test] = {
    "more even than odd": lambda code: _evens(code) > 1,
    "more odd than even": lambda code: _evens(code) < 2,
    "triple": lambda code: _repeats(code) == 3,
    "double": lambda code: _repeats(code) == 2,
    "no repetition": lambda code: _repeats(code) == 1,
    "a pair": lambda code: _repeats(code) == 2,
    "no pair": lambda code: _repeats(code) != 2,
    "strictly ascending": lambda code: code[0] < code[1] < code[2],
    "strictly descending": lambda code: code[0] > code[1] > code[2],
    "no order": lambda code: not code[0] < code[1] < code[2] and not code[0] > code[1] > code[2],
    "3 consecutive ascending": lambda code: _ascending_run(code) == 3,
    "2 consecutive ascending": lambda code: _ascending_run(code) == 2,
    "none": lambda code: _ascending_run(code) == 1,
    "run of 3": lambda code: _run(code) == 3,
    "run of 2": lambda code: _run(code) == 2,
    "no consecutive run up or down": lambda code: _run(code) == 1,
}


@cache
def passing(criterion: str) -> NDArray[np.bool_]:
    """Which of :data:`CODES` a criterion lets pass, ``(125,)``; read-only, because it is shared.

    Raises:
        UserError: the sentence is none of those above.
    """
    test = _test(criterion)
    mask = np.array([test(code) for code in CODES])
    mask.setflags(write=False)
    return mask


def _test(criterion: str) -> Test:
    if named := _NAMED.get(criterion):
        return named
    if found := re.fullmatch(r"exactly (\d) x (\d)", criterion):
        count, digit = map(int, found.groups())
        return lambda code: code.count(digit) == count
    if found := re.fullmatch(r"(\d) even numbers", criterion):
        evens = int(found[1])
        return lambda code: _evens(code) == evens
    if found := re.fullmatch(r"(.+) multiple of (\d)", criterion):
        total, divisor = _sum(found[1], criterion), int(found[2])
        return lambda code: total(code) % divisor == 0
    if found := re.fullmatch(r"(.+) (even|odd)", criterion):
        total, rest = _sum(found[1], criterion), int(found[2] == "odd")
        return lambda code: total(code) % 2 == rest
    if found := re.fullmatch(rf"({'|'.join(COLOURS)}) ({'|'.join(_EXTREMES)})", criterion):
        place, beats = COLOURS.index(found[1]), _EXTREMES[found[2]]
        return lambda code: all(beats(code[place], code[other]) for other in range(3) if other != place)
    if found := re.fullmatch(r"(.+?)\s*([<=>])\s*(.+)", criterion):
        left, compare, right = _sum(found[1], criterion), _COMPARE[found[2]], _sum(found[3], criterion)
        return lambda code: bool(compare(left(code), right(code)))
    raise UserError(
        f"TurnBench criterion {criterion!r} is unknown; see mlmf/data/turnbench_rules.py for the sentences"
    )


def _sum(words: str, criterion: str) -> Callable[[Code], int]:
    """``B+Y``, ``sum`` or a plain number as a function of the code."""
    if words.isdigit():
        number = int(words)
        return lambda code: number
    unknown = [word for word in words.split("+") if word not in _PLACES]
    if unknown:
        raise UserError(f"TurnBench criterion {criterion!r}: {unknown[0]!r} is no colour; use {', '.join(_PLACES)}")
    places = [place for word in words.split("+") for place in _PLACES[word]]
    return lambda code: sum(code[place] for place in places)
