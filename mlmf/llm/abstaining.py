"""When an answer says that nothing is known: by the probability of saying so, not by the likeliest first word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import FloatTensor, LongTensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase

from mlmf.abstention import ABSTENTION

WRITTEN = (f" {ABSTENTION}", ABSTENTION, f" {ABSTENTION.lower()}", ABSTENTION.lower())
"""As it stands after "Answer:", with the blank before it, and as models write it that are barred from that."""


class AbstainFrom(LogitsProcessor):
    """Begins an answer with the abstention exactly where that is probable enough."""

    def __init__(self, probability: float, first: Sequence[int], prompt_tokens: int, blank: int | None = None) -> None:
        """Decide at the first token written, or at the one after a blank.

        Args:
            probability: from which the abstention is said.
            first: tokens that it may begin with, however it is written; the first of them is how it is said.
            prompt_tokens: length of the prompts.
            blank: the token before it, where the tokenizer makes one of the blank alone.
        """
        self.probability, self.first, self.blank = probability, list(first), blank
        self.place = prompt_tokens + (blank is not None)

    def __call__(self, input_ids: LongTensor, scores: FloatTensor) -> FloatTensor:
        """Scores ``(B, V)`` of the next token."""
        if input_ids.shape[1] != self.place:
            return scores
        abstains = scores.float().softmax(-1)[:, self.first].sum(-1, keepdim=True) >= self.probability
        barred = torch.zeros_like(scores, dtype=torch.bool)
        barred[:, self.first] = True
        others = torch.arange(scores.shape[1], device=scores.device) != self.first[0]
        excluded = torch.where(abstains, others, barred)
        if self.blank is not None:
            excluded = excluded & (input_ids[:, -1:] == self.blank)
        return cast(FloatTensor, scores.masked_fill(excluded, -torch.inf))


def abstaining(
    probability: float | None, tokenizer: PreTrainedTokenizerBase, prompt_tokens: int
) -> LogitsProcessorList:
    """What ``abstain_from`` asks of decoding: nothing where it is ``None``.

    Args:
        probability: from which the abstention is said.
        tokenizer: of the model that answers.
        prompt_tokens: length of the prompts.
    """
    if probability is None:
        return LogitsProcessorList()
    rows: list[list[int]] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in WRITTEN]
    blank = None if str(tokenizer.decode(rows[0][:1])).strip() else rows[0][0]
    if blank is not None:
        rows = [row[1:] for row in rows if row[0] == blank]
    first = dict.fromkeys(row[0] for row in rows)
    return LogitsProcessorList([AbstainFrom(probability, list(first), prompt_tokens, blank)])
