"""Who plays TurnBench: chance, an exact solver, a chat model that keeps the whole dialogue before it."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mlmf.data.turnbench_rules import CODES, passing
from mlmf.evaluation.turnbench_game import MAX_QUERIES, SKIP, read_code, show_code
from mlmf.llm.chat import ChatModel, Message

_VERIFIER = re.compile(r"^Verifier (\d+): (.+)$", re.MULTILINE)
_VERDICT = re.compile(r"^Verifier (\d+) on (.+): (PASS|FAIL)$", re.MULTILINE)

TEMPLATE_TOKENS = 16
"""Allowance for the marks that a chat template puts around a message."""


class RandomPlayer:
    """Submits a code drawn from all 125 in its first round: wins 1 game in 125."""

    def __init__(self, seed: str) -> None:
        """Draw from ``seed``."""
        self.code = random.Random(seed).choice(CODES)

    def respond(self, turn: str) -> str:
        """The code, wherever one is asked for."""
        return SKIP if turn.splitlines()[-1].startswith("Query") else show_code(self.code)


class EnumerationPlayer:
    """Keeps every assignment of criteria to verifiers that the turns so far allow, and submits once one code is left.

    It reads nothing but the turns: that it wins shows that they say enough. It tests the code whose verifiers split what
    is left most evenly.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._masks: list[NDArray[np.bool_]] = []
        self._assignments = np.empty((0, 0), dtype=np.intp)
        self._answers = np.empty(0, dtype=np.intp)
        self._proposed = 0

    def respond(self, turn: str) -> str:
        """Propose, ask or submit, as the last line of the turn wants."""
        if not self._masks:
            self._open([criteria.split(" | ") for _, criteria in _VERIFIER.findall(turn)])
        for number, code, verdict in _VERDICT.findall(turn):
            self._learn(int(number), CODES.index(read_code(code)), verdict == "PASS")
        request = turn.splitlines()[-1]
        if request.startswith("Round"):
            splits = np.sort([self._splits(i) for i in range(len(self._masks))], axis=0)  # (V, 125)
            self._proposed = int(splits[-MAX_QUERIES:].sum(0).argmax())
            return show_code(CODES[self._proposed])
        if request.startswith("Query"):
            gains = [self._splits(i)[self._proposed] for i in range(len(self._masks))]
            best = int(np.argmax(gains))
            return SKIP if self._is_solved() or gains[best] == 0 else f"VERIFIER {best}"
        return show_code(CODES[self._answers[0]]) if self._is_solved() else SKIP

    def _open(self, verifiers: Sequence[Sequence[str]]) -> None:
        """All assignments that leave exactly one code, ``(N, V)``, and that code, ``(N,)``."""
        self._masks = [np.stack([passing(one) for one in criteria]) for criteria in verifiers]
        assignments = np.array(list(product(*(range(len(mask)) for mask in self._masks))))
        passed = np.logical_and.reduce([mask[assignments[:, i]] for i, mask in enumerate(self._masks)])  # (N, 125)
        unique = passed.sum(1) == 1
        self._assignments, self._answers = assignments[unique], passed[unique].argmax(1)

    def _learn(self, verifier: int, code: int, verdict: bool) -> None:
        kept = self._masks[verifier][self._assignments[:, verifier], code] == verdict
        self._assignments, self._answers = self._assignments[kept], self._answers[kept]

    def _is_solved(self) -> bool:
        return bool((self._answers == self._answers[0]).all())

    def _splits(self, verifier: int) -> NDArray[np.intp]:
        """For each code, how many assignments this verifier's verdict rules out at least, ``(125,)``."""
        held = np.bincount(self._assignments[:, verifier], minlength=len(self._masks[verifier]))
        passed = held @ self._masks[verifier]
        return np.minimum(passed, len(self._assignments) - passed)


class ChatPlayer:
    """A chat model with the dialogue so far as its prompt.

    Where the dialogue outgrows the model's window, the oldest turns after the rules are left out.
    """

    def __init__(self, model: ChatModel, max_new_tokens: int) -> None:
        """Play one game with ``model``, which writes ``max_new_tokens`` a turn at most."""
        self.model, self.max_new_tokens = model, max_new_tokens
        self._messages: list[Message] = []

    def respond(self, turn: str) -> str:
        """The model's reply to the turn."""
        self._messages.append(Message("user", turn))
        room = self.model.context_window - self.max_new_tokens
        while len(self._messages) > 3 and self._tokens() > room:
            del self._messages[1:3]  # a reply and the turn after it, so that user and assistant keep taking turns
        reply = self.model.chat([self._messages], self.max_new_tokens)[0].text
        self._messages.append(Message("assistant", reply))
        return reply

    def _tokens(self) -> int:
        return sum(self.model.count_tokens(one.content) + TEMPLATE_TOKENS for one in self._messages)
