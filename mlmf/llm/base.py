"""What the text systems need of a language model: complete prompts, count tokens, know its window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote after one prompt, and what that cost."""

    text: str
    """The first line written, without surrounding white space."""
    prompt_tokens: int
    """Tokens the model read."""
    new_tokens: int
    """Tokens it wrote, up to and including the one that ended the line."""
    seconds_decoding: float = field(default=0.0, compare=False)
    """Of the batch, writing all tokens but the first, over the completions in it; 0 where that cannot be told."""


class LanguageModel(ABC):
    """A model that answers prompts. It keeps nothing from one call to the next that could change an answer."""

    @property
    @abstractmethod
    def context_window(self) -> int:
        """How many tokens a prompt and its completion may have together."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone, without the marks that open or close a prompt."""

    @abstractmethod
    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Complete each prompt greedily, with at least one token, up to the end of its first line.

        Args:
            prompts: independent prompts; the answers come in the same order and do not depend on the grouping.
            max_new_tokens: the most tokens written per prompt.

        Raises:
            ValueError: a prompt and ``max_new_tokens`` together exceed ``context_window``.
        """

    def complete_with_prefix(self, prefix: str, suffixes: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Complete ``prefix + suffix`` for every suffix; a model that can reads the prefix once for all of them."""
        return self.complete([prefix + suffix for suffix in suffixes], max_new_tokens)


def answer_line(text: str) -> str:
    """The first line of ``text`` that holds something, without surrounding white space; empty where none does."""
    return next(iter(text.strip().splitlines()), "").strip()
