"""TurnBench's classic mode (arXiv 2506.01341) as a dialogue: one game between a set-up and anything that answers turns.

A round: the player proposes a code, has it checked by up to three verifiers one after another, and submits a code or goes
on to the next round. The game ends with the first code submitted, after ``max_rounds``, or once a reply cannot be read even
after three more tries. Everything a player learns stands in the turns, so a player needs a memory and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from mlmf.data.turnbench import Setup
from mlmf.data.turnbench_rules import COLOURS, Code

MAX_ROUNDS, MAX_QUERIES, MAX_RETRIES = 20, 3, 3
SKIP = "SKIP"
Outcome = Literal["won", "wrong_code", "out_of_rounds", "unreadable"]
T = TypeVar("T")

_CODE = re.compile(r"BLUE\s*[=:]\s*(\d+)\W+YELLOW\s*[=:]\s*(\d+)\W+PURPLE\s*[=:]\s*(\d+)", re.IGNORECASE)
_CHOICE = re.compile(rf"\b(?:VERIFIER\s*#?\s*(\d+)|{SKIP})\b", re.IGNORECASE)

RULES = """Find the hidden code. It has three digits, BLUE, YELLOW and PURPLE, each from 1 to 5.
Below are verifiers. Each lists several criteria and secretly checks one of them, the same through the whole game. \
The hidden code is the only one that passes all verifiers.
In "exactly 2 x 3" the digit 3 stands twice in the code; B, Y and P are the colours; sum is that of all three digits.
Each round you propose a code, ask up to {queries} verifiers whether that code passes, and then submit a code or skip. \
You may submit only once. There are {rounds} rounds.

{verifiers}"""
PROPOSE = "Round {round} of {rounds}. Propose a code to test, in the form BLUE=1 YELLOW=2 PURPLE=3."
QUERY = (
    "Query {query} of {queries}. Name the verifier that should check {code}, in the form VERIFIER 0, or write SKIP."
)
SUBMIT = (
    "Submit the hidden code in the form BLUE=1 YELLOW=2 PURPLE=3 if you are sure, or write SKIP to play another round."
)


class Player(Protocol):
    """Whoever plays one game."""

    def respond(self, turn: str) -> str:
        """Answer the game's next turn. The first of a game starts with the rules and the verifiers."""


@dataclass(frozen=True, slots=True)
class Game:
    """What became of one game."""

    setup_id: str
    difficulty: str
    outcome: Outcome
    rounds: int
    """Rounds begun."""
    queries: int
    """Verifiers asked."""
    retries: int
    """Replies that could not be read, the last of an unreadable game too."""


class _Unreadable(Exception):
    """Too many replies in a row could not be read."""


class _Table:
    """Asks the player, keeps the counts, and puts what happened last before the next request."""

    def __init__(self, player: Player, news: str) -> None:
        self.player, self.news = player, news
        self.queries = self.retries = 0

    def ask(self, request: str, read: Callable[[str], T]) -> T:
        """The player's reply as ``read`` understands it; ``read`` raises ``ValueError`` with what is wrong."""
        turn = f"{self.news}\n\n{request}" if self.news else request
        self.news = ""
        for attempt in range(1 + MAX_RETRIES):
            reply = self.player.respond(turn)
            try:
                return read(reply)
            except ValueError as error:
                self.retries += 1
                turn = f"That could not be read: {error}. Tries left: {MAX_RETRIES - attempt}.\n\n{request}"
        raise _Unreadable


def play(setup: Setup, player: Player, max_rounds: int = MAX_ROUNDS) -> Game:
    """Play one game to its end; what ``player`` raises is passed on."""
    verifiers = "\n".join(f"Verifier {i}: {' | '.join(one.criteria)}" for i, one in enumerate(setup.verifiers))
    table = _Table(player, RULES.format(queries=MAX_QUERIES, rounds=max_rounds, verifiers=verifiers))

    def ended(outcome: Outcome, rounds: int) -> Game:
        return Game(setup.id, setup.difficulty, outcome, rounds, table.queries, table.retries)

    for number in range(1, max_rounds + 1):
        try:
            proposed = table.ask(PROPOSE.format(round=number, rounds=max_rounds), read_code)
            _query(setup, table, proposed)
            submitted = table.ask(SUBMIT, read_code_or_skip)
        except _Unreadable:
            return ended("unreadable", number)
        if submitted is not None:
            return ended("won" if submitted == setup.answer else "wrong_code", number)
    return ended("out_of_rounds", max_rounds)


def _query(setup: Setup, table: _Table, proposed: Code) -> None:
    for number in range(1, MAX_QUERIES + 1):
        request = QUERY.format(query=number, queries=MAX_QUERIES, code=show_code(proposed))
        chosen = table.ask(request, lambda reply: read_verifier(reply, len(setup.verifiers)))
        if chosen is None:
            return
        table.queries += 1
        verdict = "PASS" if setup.verifiers[chosen].passes(proposed) else "FAIL"
        table.news = f"Verifier {chosen} on {show_code(proposed)}: {verdict}"


def show_code(code: Code) -> str:
    """``BLUE=1 YELLOW=2 PURPLE=3``."""
    return " ".join(f"{colour}={digit}" for colour, digit in zip(COLOURS, code, strict=True))


def read_code(reply: str) -> Code:
    """The last code in a reply, so that a player may think aloud before it.

    Raises:
        ValueError: there is none, or a digit is not from 1 to 5.
    """
    found = _CODE.findall(reply)
    if not found:
        raise ValueError("no code in the form BLUE=1 YELLOW=2 PURPLE=3")
    blue, yellow, purple = (int(digit) for digit in found[-1])
    code = (blue, yellow, purple)
    if not all(1 <= digit <= 5 for digit in code):
        raise ValueError(f"{show_code(code)} has a digit that is not from 1 to 5")
    return code


def read_code_or_skip(reply: str) -> Code | None:
    """The last code in a reply, or ``None`` where SKIP comes after it.

    Raises:
        ValueError: neither of them can be read.
    """
    skips = [found.start() for found in _CHOICE.finditer(reply) if found[0].upper() == SKIP]
    codes = [found.start() for found in _CODE.finditer(reply)]
    return None if skips and skips[-1] > max(codes, default=-1) else read_code(reply)


def read_verifier(reply: str, count: int) -> int | None:
    """The last verifier named in a reply, from 0, or ``None`` where the last choice in it is SKIP.

    Raises:
        ValueError: there is neither, or no verifier of that number among ``count``.
    """
    found = list(_CHOICE.finditer(reply))
    if not found:
        raise ValueError("neither VERIFIER and a number nor SKIP")
    if found[-1][1] is None:
        return None
    number = int(found[-1][1])
    if number >= count:
        raise ValueError(f"there is no verifier {number}, only 0 to {count - 1}")
    return number
