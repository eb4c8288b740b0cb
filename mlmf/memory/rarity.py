"""How rare a word is: by what a memory holds, and before it holds much, by what the training data held."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PRIOR_TURNS, PRIOR_SESSIONS = 1000, 100
"""What the training data weighs beside a memory, at most: as many of its turns and sessions."""


class Rarity(nn.Module):
    """Inverse document frequency ``max(0, ln((n + p + 1) / (h + p f + 1/2)))`` of the tokens of turns or sessions.

    ``h`` of the ``n`` that a memory holds have the token, and the share ``f`` of those that were counted before, which weigh
    ``p``. Without them a word's rarity would be that of the memory's size: among a few turns every word is common, and the
    score that a turn must reach to be an answer would change as the memory grows.
    """

    held: Tensor
    counted: Tensor

    def __init__(self, vocab: int, prior: int) -> None:
        """Nothing is counted yet.

        Args:
            vocab: ids of tokens; those beyond count as never seen.
            prior: ``p``, or all that was counted where that is less.
        """
        super().__init__()
        self.prior = prior
        self.register_buffer("held", torch.zeros(vocab))
        self.register_buffer("counted", torch.zeros(()))

    def count(self, texts: Sequence[Sequence[int]]) -> None:
        """Count the turns or sessions, given as token ids, that hold each token; in place of what was counted before."""
        self.held.zero_()
        for ids in texts:
            self.held[list(set(ids))] += 1
        self.counted.fill_(len(texts))

    def forward(self, present: Tensor, tokens: Tensor, count: Tensor) -> Tensor:
        """What each token counts in each place.

        Args:
            present: 1 where a place holds the token, ``(B, U, N)``.
            tokens: their ids, ``(U,)``.
            count: ``n`` of each conversation, ``(B,)``.

        Returns:
            ``(B, U, N)``.
        """
        counted = self.counted.float()
        weight = counted.clamp_max(self.prior)
        share = F.pad(self.held.float(), (0, 1))[tokens.clamp_max(len(self.held))] / counted.clamp_min(1)
        among = (count + weight + 1)[:, None] / (present.sum(-1) + weight * share + 0.5)
        return present * among.log().clamp_min(0)[..., None]
