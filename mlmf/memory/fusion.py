"""Fusion, equation (8): ``z = h + tanh(g) * W_o R`` with ``R = sum_i gamma_i Attn(x, M_i)``, at one decoder layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mlmf.memory.gate import LAYERS, MASKED, LayerGate, layer_similarity
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
    """``(B, Hkv, M, d)``"""
    value: Tensor
    """``(B, Hkv, M, d)``"""
    key_scale: Tensor
    """One over the length of each key, ``(B, Hkv, M)``: a product with it is a cosine but for the query's length."""
    bias: Tensor
    """Added to the attention logits, ``(B, 1, 1, M)``; ``MASKED`` at empty slots."""
    floor: Tensor
    """Added to cosines, ``(B, 1, 1, M)``: 0, and ``MASKED`` at empty slots."""
    present: Tensor
    """Layers that hold anything, ``(B, 3)``."""
    opening: Tensor
    """``tanh(g)``, and 0 for a conversation without memory, which stays the base model's even where the output
    projection has a bias; ``(B, 1, 1)``."""
    sizes: tuple[int, int, int]

    def repeat(self, times: int) -> ProjectedBank:
        """Each row ``times`` times in a row, as beam search and several return sequences lay out a batch."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        rows: dict[str, Any] = {name: value.repeat_interleave(times, 0) for name, value in tensors.items()}
        return replace(self, **rows)


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
        key_scale = key.float().norm(dim=-1).clamp_min(1e-12).reciprocal()
        filled, bias = bank.mask[:, None, None], bank.bias.float()[:, None, None]
        floor = torch.zeros_like(bias).masked_fill(~filled, MASKED)
        present = bank.present
        opening = (torch.tanh(self.g) * present.any(-1)[:, None, None]).to(value.dtype)
        bias = bias.masked_fill(~filled, MASKED)
        return ProjectedBank(key, value, key_scale, bias, floor, present, opening, bank.sizes)

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
        groups = query.shape[2]
        query = query.flatten(2, 3)  # (B, Hkv, G*T, d)
        product = (query @ bank.key.mT).float()  # (B, Hkv, G*T, M)
        gamma = self.layer_weights(query, product, bank)
        logits = torch.add(bank.bias, product, alpha=self.scale)
        # Attn(x, M_i) of each layer by itself, weighted by gamma_i, then one product with all values
        shares = gamma[:, None].repeat(1, 1, groups, 1)  # (B, 1, G*T, 3)
        weights = [part.softmax(-1) * shares[..., i, None] for i, part in enumerate(logits.split(bank.sizes, -1))]
        read = torch.cat(weights, -1).to(h.dtype) @ bank.value  # (B, Hkv, G*T, d)
        read = read.unflatten(2, (groups, t)).permute(0, 3, 1, 2, 4).reshape(b, t, -1)
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
            return self.gate(similarity.unflatten(2, (-1, tokens)).mean((1, 2)), bank.present)
        share = bank.present.float() / bank.present.sum(-1, keepdim=True).clamp_min(1)
        return share[:, None].expand(-1, tokens, len(LAYERS))
