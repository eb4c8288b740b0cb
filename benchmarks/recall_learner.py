"""What the recall benchmark trains and scores, whatever memory is inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from benchmarks.recall_data import Asked, gold
from mlmf.types import Question


class Learner(nn.Module, ABC):
    """A model that reads conversations, then answers questions about them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Keep the tokenizer of the task."""
        super().__init__()
        self.tokenizer = tokenizer

    @abstractmethod
    def forward(self, batch: Sequence[Asked]) -> tuple[Tensor, list[bool], dict[str, float]]:
        """Loss, whether each question in order was answered to the letter, and figures for the log."""

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Parameter groups of the optimiser at a peak rate."""
        return [{"params": [one for one in self.parameters() if one.requires_grad], "lr": rate}]

    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing added."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def target(self, question: Question) -> list[int]:
        """Ids of the one word that answers a question, and of the end."""
        return [*self.encode(gold(question)), int(self.tokenizer.eos_token_id)]
