"""When an answer says that nothing is known: by the probability of saying so, not by the likeliest first word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import FloatTensor, LongTensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerBase

from mlmf.abstention import ABSTENTION


class AbstainFrom(LogitsProcessor):
    """Begins an answer with the abstention exactly where that is probable enough."""

    def __init__(self, probability: float, first: Sequence[int], prompt_tokens: int) -> None:
        """Decide at the first token written.

        Args:
            probability: from which the abstention is said.
            first: tokens that it may begin with, however it is written; the first of them is how it is said.
            prompt_tokens: length of the prompts.
        """
        self.probability, self.first, self.prompt_tokens = probability, list(first), prompt_tokens

    def __call__(self, input_ids: LongTensor, scores: FloatTensor) -> FloatTensor:
        """Scores ``(B, V)`` of the next token."""
        if input_ids.shape[1] != self.prompt_tokens:
            return scores
        abstains = scores.float().softmax(-1)[:, self.first].sum(-1, keepdim=True) >= self.probability
        barred = torch.zeros_like(scores, dtype=torch.bool)
        barred[:, self.first] = True
        others = torch.arange(scores.shape[1], device=scores.device) != self.first[0]
        return cast(FloatTensor, scores.masked_fill(torch.where(abstains, others, barred), -torch.inf))


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
    # the first as it stands after "Answer:", with the blank before it; barred from that, models write it in another way
    written = (f" {ABSTENTION}", ABSTENTION, f" {ABSTENTION.lower()}", ABSTENTION.lower())
    first = dict.fromkeys(tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in written)
    return LogitsProcessorList([AbstainFrom(probability, list(first), prompt_tokens)])
