"""What a forward pass with memory gives back, and how it is summed up: the loss over labels, the shares of the gate."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor
from transformers import Cache
from transformers.utils.generic import ModelOutput

from mlmf.memory.find import FindScores
from mlmf.recall import Recall

IGNORED = -100
"""Label of a token that is not trained on, as everywhere in Hugging Face."""


@dataclass
class MLMFOutput(ModelOutput):
    """A causal LM's output, and what the memory did."""

    loss: Tensor | None = None
    """``L_gen``: mean cross-entropy over the labelled tokens."""
    logits: Tensor | None = None
    """``(B, T, V)``; only the positions that predict a label where ``labelled_only`` was asked for."""
    gates: Tensor | None = None
    """Share of working, episodic and semantic memory in the read, mean over tokens and fusion layers, ``(B, 3)``; 0 for
    a row whose memory is empty, ``None`` where all are."""
    gamma: Tensor | None = None
    """The same for every fusion layer and token, ``(B, L, T, 3)``."""
    recalls: list[Recall] | None = None
    """The event nodes read, per row."""
    scores: FindScores | None = None
    """What they were chosen by."""
    past_key_values: Cache | None = None
    """The wrapped model's cache, with ``use_cache=True``."""


def predicting_positions(labels: Tensor) -> Tensor:
    """Positions of ``labels`` ``(B, T)`` whose next token is labelled in some row, ``(P,)``."""
    return (labels[:, 1:] != IGNORED).any(0).nonzero().squeeze(-1)


def labelled_loss(logits: Tensor, labels: Tensor, positions: Tensor | None) -> Tensor:
    """Mean cross-entropy over the labelled tokens, from logits of ``positions`` or of every position."""
    predicted = logits[:, :-1] if positions is None else logits
    targets = labels[:, 1:] if positions is None else labels[:, positions + 1]
    wanted = targets != IGNORED
    return F.cross_entropy(predicted[wanted].float(), targets[wanted])


def mean_gates(gamma: Tensor, mask: Tensor) -> Tensor:
    """Gamma ``(B, L, T, 3)`` averaged over layers and the tokens of ``mask``, whose last ``T`` were computed."""
    weight = mask[:, None, -gamma.shape[2] :, None].to(gamma.dtype)
    return (gamma * weight).sum((1, 2)) / (weight.sum((1, 2)) * gamma.shape[1]).clamp_min(1)
