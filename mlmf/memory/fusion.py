"""Fusion, equation (8): ``z = h + tanh(g) * W_o R`` with ``R = sum_i gamma_i Attn(x, M_i)``, at one decoder layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mlmf.memory.gate import LAYERS, MASKED, LayerGate, layer_similarity
from mlmf.memory.host import HostAttention


@dataclass(frozen=True)
class MemoryBank:
    """What one forward pass reads: the three layers side by side, the same for every token it decodes.

    ``states`` is ``(B, L, M, D)`` and ``mask`` ``(B, M)``; ``sizes`` says how many of the ``M`` slots are working,
    episodic and semantic; ``bias`` ``(B, M)`` is added to the attention logits.
    """

    states: Tensor
    mask: Tensor
    bias: Tensor
    sizes: tuple[int, int, int]

    @property
    def present(self) -> Tensor:
        """Which layers hold anything, ``(B, 3)`` bool."""
        return torch.stack([part.any(-1) for part in self.mask.split(self.sizes, dim=-1)], -1)


@dataclass(frozen=True)
class ProjectedBank:
    """A bank as one fusion layer needs it: projected once, read at every token."""

    key: Tensor
    """``(B, Hkv, M, d)``"""
    value: Tensor
    """``(B, Hkv, M, d)``"""
    bias: Tensor
    """Added to the attention logits, ``(B, M)``."""
    mask: Tensor
    """Filled slots, ``(B, M)``."""
    present: Tensor
    """Layers that hold anything, ``(B, 3)``."""
    sizes: tuple[int, int, int]

    def repeat(self, times: int) -> ProjectedBank:
        """Each row ``times`` times in a row, as beam search and several return sequences lay out a batch."""
        if times == 1:
            return self
        names = ("key", "value", "bias", "mask", "present")
        return replace(self, **{name: getattr(self, name).repeat_interleave(times, 0) for name in names})


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
        self.g = nn.Parameter(torch.zeros(()))
        self.gate = LayerGate(beta, epsilon) if gating else None

    def project(self, bank: MemoryBank, layer: int) -> ProjectedBank:
        """Keys and values of a bank for fusion layer ``layer`` of ``L``."""
        key, value = self.reads(bank.states[:, layer])
        return ProjectedBank(
            key.transpose(1, 2), value.transpose(1, 2), bank.bias.float(), bank.mask, bank.present, bank.sizes
        )

    def reads(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of slots ``(..., D)``, each ``(..., Hkv, d)``: all that the read sees of them."""
        memory = self.norm(states)
        shape = (*states.shape[:-1], self.kv_heads, self.head_dim)
        return self.k_norm(self.k(memory).view(shape)), self.v(memory).view(shape)

    def forward(self, h: Tensor, bank: ProjectedBank) -> tuple[Tensor, Tensor]:
        """Read the memory for hidden states ``h`` ``(B, T, D)``.

        Returns:
            The fused states and gamma ``(B, T, 3)``.
        """
        b, t, _ = h.shape
        bank = bank.repeat(b // bank.key.shape[0])
        x = self.norm(h)
        query = self.q_norm(self.q(x).view(b, t, self.heads, self.head_dim))
        # heads that share a key-value head are queries of the same group
        query = query.view(b, t, self.kv_heads, -1, self.head_dim).permute(0, 2, 3, 1, 4)  # (B, Hkv, G, T, d)
        gamma = self.layer_weights(query, bank)
        scores = query.flatten(2, 3) @ bank.key.mT * self.head_dim**-0.5  # (B, Hkv, G*T, M)
        scores = scores.float() + bank.bias[:, None, None]
        scores = scores.masked_fill(~bank.mask[:, None, None], MASKED).unflatten(2, query.shape[2:4])
        parts = scores.split(bank.sizes, -1)
        # Attn(x, M_i) of each layer by itself, weighted by gamma_i, then one product with all values
        weights = [part.softmax(-1) * gamma[:, None, None, :, i, None] for i, part in enumerate(parts)]
        read = torch.cat(weights, -1).to(h.dtype).flatten(2, 3) @ bank.value  # (B, Hkv, G*T, d)
        read = read.unflatten(2, query.shape[2:4]).permute(0, 3, 1, 2, 4).reshape(b, t, -1)
        # a conversation without memory stays the base model's even where the output projection has a bias
        opening = torch.tanh(self.g) * bank.present.any(-1)[:, None, None]
        return h + opening.to(h.dtype) * self.o(read), gamma

    def layer_weights(self, query: Tensor, bank: ProjectedBank) -> Tensor:
        """Gamma ``(B, T, 3)``, learned (eq. 7) or equal over the layers present."""
        if self.gate is not None:
            return self.gate(layer_similarity(query, bank.key, bank.mask, bank.sizes), bank.present)
        share = bank.present.float() / bank.present.sum(-1, keepdim=True).clamp_min(1)
        return share[:, None].expand(-1, query.shape[3], len(LAYERS))
