"""Settings of ``python -m mlmf.evaluation.turnbench``: who plays which games."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlmf.config.cogmem import CogMemSettings
from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError

PlayerName = Literal["enumeration", "random", "chat", "cogmem"]


def _within_a_game() -> CogMemSettings:
    """Every game is a user of its own, so nothing that outlives a session is of use."""
    return CogMemSettings(long_term=False)


@dataclass
class TurnBenchConfig:
    """One run: every player plays every set-up."""

    players: list[PlayerName] = field(default_factory=lambda: ["enumeration", "random"])
    """enumeration: exact elimination, the upper bound; random: submits any code, the lower one; chat: the chat model with the
    whole dialogue before it; cogmem: the same model with CogMem's window before it."""
    chat: ChatSettings = field(default_factory=ChatSettings)
    """The model that plays as chat and as cogmem. With chat.cache a stopped run plays on where it was."""
    cogmem: CogMemSettings = field(default_factory=_within_a_game)
    """Of the player cogmem."""
    max_new_tokens: int = 64
    """Longest reply of the chat model, in tokens."""
    max_rounds: int = 20
    """Rounds of a game; the benchmark has 20."""
    limit: int | None = None
    """Play only the first so many set-ups of each difficulty; null plays all 45."""
    random_repeats: int = 100
    """How often random plays each set-up."""
    output: str = "outputs/turnbench.json"
    """File of the scores; overwritten."""

    def __post_init__(self) -> None:
        """Refuse values no game can be played with."""
        for name in ("max_new_tokens", "max_rounds", "random_repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit must be at least 1, got {self.limit}; null plays every set-up")
        if not self.players:
            raise UserError("players is empty: give enumeration, random, chat or several")
        if {"chat", "cogmem"} & set(self.players) and self.chat.model is None:
            raise UserError(
                "chat and cogmem play with chat.model, which is null; give --chat.model smollm2-135m or another"
            )
        if self.cogmem.long_term:
            raise UserError(
                "cogmem.long_term: every game is a user of its own, so there is nothing to keep; give false"
            )
