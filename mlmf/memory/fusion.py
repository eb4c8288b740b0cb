"""Fusion, equation (8): ``z = h + tanh(g) * W_o R`` with ``R = sum_i gamma_i Attn(x, M_i)``, at one decoder layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mlmf.memory.gate import MASKED, LayerGate, Presence, layer_similarity, layer_weights
from mlmf.memory.host import HostAttention


@dataclass(frozen=True)
class MemoryBank:
    """What one forward pass reads: the three layers side by side, the same for every token it decodes.

    ``parts`` are states ``(B, L, m, D)``, which follow each other over the ``M`` slots: in parts, since most of them carry
    no gradient and need none of its work. ``mask`` is ``(B, M)``; ``sizes`` says how many of the slots are working, episodic
    and semantic; ``bias`` ``(B, M)`` is added to the attention logits.
    """

    parts: tuple[Tensor, ...]
    mask: Tensor
    bias: Tensor
    sizes: tuple[int, int, int]

    @property
    def states(self) -> Tensor:
        """All slots, ``(B, L, M, D)``."""
        return torch.cat(self.parts, 2)

    @property
    def present(self) -> Tensor:
        """Which layers hold anything, ``(B, 3)`` bool."""
        return torch.stack([part.any(-1) for part in self.mask.split(self.sizes, dim=-1)], -1)


@dataclass(frozen=True)
class ProjectedBank:
    """A bank as one fusion layer needs it. All that is the same for every token is computed here, once."""

    key: Tensor
    """``(B, Hkv, M, d)``; float32 where no gradient is wanted, since many tokens read what is converted once."""
    value: Tensor
    """``(B, Hkv, M, d)``, in the dtype of the keys."""
    key_scale: Tensor
    """One over the length of each key, ``(B, Hkv, M)``: a product with it is a cosine but for the query's length."""
    bias: Tensor
    """Added to the attention logits, ``(B, 1, 1, M)``; ``MASKED`` at empty slots."""
    floor: Tensor
    """Added to cosines, ``(B, 1, 1, M)``: 0, and ``MASKED`` at empty slots."""
    presence: Presence
    opening: Tensor
    """``tanh(g)``, and 0 for a conversation without memory, which stays the base model's even where the output
    projection has a bias; ``(B, 1, 1)``."""
    sizes: tuple[int, int, int]

    def repeat(self, times: int) -> ProjectedBank:
        """Each row ``times`` times in a row, as beam search and several return sequences lay out a batch."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        rows: dict[str, Any] = {name: value.repeat_interleave(times, 0) for name, value in tensors.items()}
        return replace(self, **rows, presence=Presence(*(part.repeat_interleave(times, 0) for part in self.presence)))


class Fusion(nn.Module):
    """Gated cross-attention of one decoder layer onto memory; starts as a copy of the layer's own attention.

    No rotary positions: a memory has no place in the prompt. The layer's norm is applied on both sides, since both
    are inputs of that layer. ``g`` starts at 0, so that a fresh model is the base model.
    """

    def __init__(self, host: HostAttention, beta: float, epsilon: float, gating: bool) -> None:
        """Build from copied projections; ``gating=False`` weights present layers equally."""
        super().__init__()
        self.norm = host.norm
        self.q, self.k, self.v, self.o = host.q, host.k, host.v, host.o
        self.q_norm, self.k_norm = host.q_norm, host.k_norm
        self.heads, self.kv_heads, self.head_dim = host.heads, host.kv_heads, host.head_dim
        self.scale = host.scale
        self.g = nn.Parameter(torch.zeros(()))
        self.gate = LayerGate(beta, epsilon) if gating else None

    def project(self, bank: MemoryBank, layer: int) -> ProjectedBank:
        """Keys and values of a bank for fusion layer ``layer`` of ``L``."""
        reads = [self.reads(part[:, layer]) for part in bank.parts]
        key, value = (torch.cat(read, 1).transpose(1, 2) for read in zip(*reads, strict=True))
        presence = Presence.of(bank.present)
        opening = (torch.tanh(self.g) * presence.held).to(value.dtype)
        if not torch.is_grad_enabled():
            key, value = key.float(), value.float()
        key_scale = key.float().norm(dim=-1).clamp_min(1e-12).reciprocal()
        filled, bias = bank.mask[:, None, None], bank.bias.float()[:, None, None]
        floor = torch.zeros_like(bias).masked_fill(~filled, MASKED)
        bias = bias.masked_fill(~filled, MASKED)
        return ProjectedBank(key, value, key_scale, bias, floor, presence, opening, bank.sizes)

    def reads(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of slots ``(..., D)``, each ``(..., Hkv, d)``: all that the read sees of them."""
        memory = self.norm(states)
        shape = (*states.shape[:-1], self.kv_heads, self.head_dim)
        return self.k_norm(self.k(memory).view(shape)), self.v(memory).view(shape)

    def forward(self, h: Tensor, bank: ProjectedBank) -> tuple[Tensor, Tensor]:
        """Read the memory for hidden states ``h`` ``(B, T, D)``, of as many rows as the bank.

        Returns:
            The fused states and gamma ``(B, T, 3)``.
        """
        b, t, _ = h.shape
        query = self.q_norm(self.q(self.norm(h)).view(b, t, self.heads, self.head_dim))
        # heads that share a key-value head are queries of the same group
        query = query.view(b, t, self.kv_heads, -1, self.head_dim).permute(0, 2, 3, 1, 4)  # (B, Hkv, G, T, d)
        each = query.shape[2:4]
        query = query.flatten(2, 3).to(bank.key.dtype)  # (B, Hkv, G*T, d)
        product = (query @ bank.key.mT).float()  # (B, Hkv, G*T, M)
        gamma = self.layer_weights(query, product, bank)
        logits = torch.add(bank.bias, product, alpha=self.scale).unflatten(2, each)
        # Attn(x, M_i) of each layer by itself, weighted by gamma_i, then one product with all values
        shares = gamma[:, None, None].split(1, -1)  # each (B, 1, 1, T, 1)
        parts = zip(logits.split(bank.sizes, -1), shares, strict=True)
        weights = torch.cat([part.softmax(-1) * share for part, share in parts], -1)
        read = weights.flatten(2, 3).to(bank.value.dtype) @ bank.value  # (B, Hkv, G*T, d)
        read = read.to(h.dtype).unflatten(2, each).permute(0, 3, 1, 2, 4).reshape(b, t, -1)
        return torch.addcmul(h, bank.opening.to(h.dtype), self.o(read)), gamma

    def layer_weights(self, query: Tensor, product: Tensor, bank: ProjectedBank) -> Tensor:
        """Gamma ``(B, T, 3)``, learned (eq. 7) or equal over the layers present.

        Args:
            query: ``(B, Hkv, G*T, d)``.
            product: of queries and keys, ``(B, Hkv, G*T, M)``.
            bank: what is read.
        """
        tokens = query.shape[1] * query.shape[2] // self.heads
        if self.gate is not None:
            similarity = layer_similarity(query, product, bank.key_scale, bank.floor, bank.sizes)
            return self.gate(similarity.unflatten(2, (-1, tokens)).mean((1, 2)), bank.presence)
        return layer_weights(query.new_zeros(()), bank.presence, 0.0).expand(-1, tokens, -1)
