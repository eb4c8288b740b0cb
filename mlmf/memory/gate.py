"""The layer gate, equation (7): ``gamma = softmax(beta * sim(x, M_i))``, and the bound on its entropy (alg. 25-26)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

LAYERS = ("working", "episodic", "semantic")
MASKED = -1e9
"""Logit of what is not there: finite, since the softmax of a row of ``-inf`` has no gradient."""


class Presence(NamedTuple):
    """Which layers of a memory hold anything, in the form that is quickest to apply to every token."""

    absent: Tensor
    """Added to the gate's logits, ``(B, 1, 3)``: 0, and ``MASKED`` where a layer is empty."""
    held: Tensor
    """1, or 0 for a conversation without memory, ``(B, 1, 1)``."""

    @classmethod
    def of(cls, present: Tensor) -> Presence:
        """From which layers hold anything, ``(B, 3)`` bool."""
        absent = torch.zeros(present.shape, device=present.device).masked_fill(~present, MASKED)
        return cls(absent[:, None], present.any(-1)[:, None, None].float())


def layer_weights(similarity: Tensor, presence: Presence, beta: Tensor | float) -> Tensor:
    """Softmax importance of each memory layer (eq. 7).

    Args:
        similarity: ``sim(x, M_i)``, ``(B, T, 3)``, ordered working, episodic, semantic; finite where a layer is absent.
        presence: which layers hold anything.
        beta: sharpness; 0 weights every present layer equally.

    Returns:
        gamma, ``(B, T, 3)``: rows sum to 1, or to 0 where no layer holds anything.
    """
    # absent layers are 0 after the softmax already, unless all are absent
    return (presence.absent + beta * similarity).softmax(-1) * presence.held


def entropy(gamma: Tensor) -> Tensor:
    """Entropy of the last dimension in nats; ``0 ln 0 = 0``."""
    return -(gamma * gamma.clamp_min(1e-30).log()).sum(-1)


def sharpen(gamma: Tensor, epsilon: float, steps: int = 20) -> Tensor:
    """Raise rows to the smallest power at which ``H <= epsilon`` (alg. 25), by bisection; rows within stay as they are.

    A row of exact ties cannot be sharpened and is returned unchanged.
    """
    if epsilon >= math.log(gamma.shape[-1]):
        return gamma
    entropies = torch.special.entr(gamma).sum(-1, keepdim=True)
    # nearly always so, and decoding asks at every token and layer: the search below would cost as much as the read
    if float(entropies.max()) <= epsilon:
        return gamma
    log_gamma = gamma.clamp_min(1e-30).log()
    low, high = torch.ones_like(gamma[..., :1]), torch.full_like(gamma[..., :1], 1e4)
    for _ in range(steps):
        middle = (low * high).sqrt()
        above = (entropy((middle * log_gamma).softmax(-1)) > epsilon)[..., None]
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    sharp = (high * log_gamma).softmax(-1).where(gamma > 0, 0.0)
    return torch.where(entropies > epsilon, sharp, gamma)


def layer_similarity(query: Tensor, product: Tensor, key_scale: Tensor, floor: Tensor, sizes: Sequence[int]) -> Tensor:
    """``sim(x, M_i)`` of each head: how well a layer's best slot matches the token, as the read itself sees it.

    The cosine of the fusion's own query and keys, at the best slot of each layer. As the read learns what to look for,
    the gate follows to the layer that holds it, without weights of its own to learn.

    Args:
        query: ``(B, H, N, d)``; its length decides nothing about which slot is best, so it is divided by last.
        product: of queries and keys, ``(B, H, N, M)``.
        key_scale: one over the length of each key, ``(B, H, M)``.
        floor: ``(B, 1, 1, M)``, 0 at filled slots and ``MASKED`` at empty ones.
        sizes: slots of each layer, summing to ``M``.

    Returns:
        ``(B, H, N, layers)``; without meaning where a layer is empty.
    """
    length = query.float().norm(dim=-1, keepdim=True).clamp_min(1e-12)
    if (
        not torch.is_grad_enabled()
    ):  # the same without the places of the best, which take longer to find than their values
        cosine = torch.addcmul(floor, product, key_scale[:, :, None])
        parts = cosine.split(sizes, -1)
        best = [part.amax(-1) if part.shape[-1] else product.new_zeros(product.shape[:-1]) for part in parts]
        return torch.stack(best, -1) / length
    with torch.no_grad():  # which slot is best has no gradient, and its cosine alone takes a small part of them all
        cosine = torch.addcmul(floor, product, key_scale[:, :, None])
        starts = itertools.accumulate(sizes[:-1], initial=0)
        none = product.new_zeros(product.shape[:-1], dtype=torch.long)
        parts = zip(starts, cosine.split(sizes, -1), strict=True)
        chosen = torch.stack([part.argmax(-1) + start if part.shape[-1] else none for start, part in parts], -1)
    scale = key_scale.gather(-1, chosen.flatten(2)).view_as(chosen)
    return product.gather(-1, chosen) * scale / length


class LayerGate(nn.Module):
    """Equation (7) with a learned sharpness, and the entropy bound at inference."""

    def __init__(self, beta: float, epsilon: float) -> None:
        """Start at sharpness ``beta``; ``epsilon`` bounds the entropy in nats."""
        super().__init__()
        self.log_beta = nn.Parameter(torch.tensor(math.log(max(beta, 1e-6))))
        self.epsilon = epsilon

    def forward(self, similarity: Tensor, presence: Presence) -> Tensor:
        """Similarities ``(B, T, 3)`` to gamma ``(B, T, 3)``."""
        gamma = layer_weights(similarity, presence, self.log_beta.float().exp())
        return gamma if self.training else sharpen(gamma, self.epsilon)
