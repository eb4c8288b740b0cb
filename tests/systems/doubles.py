"""A model that records its prompts, an encoder with one axis a word, and sessions to feed them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from mlmf.llm.base import Completion, LanguageModel
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.vectors import unit
from mlmf.types import Session, Turn


class WordModel(LanguageModel):
    """Counts words as tokens, records prompts, always gives the same answer."""

    def __init__(self, window: int = 1_000, reply: str = "a cat") -> None:
        self.window = window
        self.reply = reply
        self.prompts: list[str] = []

    @property
    def context_window(self) -> int:
        return self.window

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        assert all(self.count_tokens(prompt) + max_new_tokens <= self.window for prompt in prompts)
        self.prompts += prompts
        return [Completion(self.reply, self.count_tokens(prompt), 2) for prompt in prompts]


def session(index: int, turns: int = 2) -> Session:
    texts = [Turn(f"S{index}:{turn}", "Anna", f"word{index}x{turn} and some more") for turn in range(turns)]
    return Session(index, datetime(2023, 5, 8 + index), tuple(texts))


class WordEncoder:
    """A text is the set of the known words in it."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def encode_documents(self, texts: Sequence[str]) -> FloatArray:
        return unit(np.array([[word in text.lower() for word in self.words] for text in texts], np.float32))

    encode_queries = encode_documents
