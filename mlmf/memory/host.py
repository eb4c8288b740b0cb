"""The wrapped model's structure, found and not assumed: its decoder layers and the projections of their attention."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mlmf.errors import UserError


@dataclass(frozen=True)
class HostAttention:
    """Copies of one decoder layer's input norm and attention projections, all as plain ``nn.Linear``."""

    norm: nn.Module
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    o: nn.Linear
    heads: int
    kv_heads: int
    head_dim: int
    q_norm: nn.Module
    k_norm: nn.Module


def decoder_layers(lm: PreTrainedModel) -> nn.ModuleList:
    """The list of decoder layers of a causal LM.

    Raises:
        UserError: no list of ``num_hidden_layers`` modules, as in encoder-decoder or exotic models.
    """
    depth = getattr(lm.config, "num_hidden_layers", None)
    found = [m for m in lm.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
    if lm.config.is_encoder_decoder or not found:
        raise UserError(
            f"{type(lm).__name__} cannot be wrapped: it has no single list of {depth} decoder layers. "
            "Use a decoder-only causal LM."
        )
    return found[0]


def host_attention(layer: nn.Module, lm: PreTrainedModel) -> HostAttention:
    """Copy a decoder layer's attention; projections that are not recognised are made anew at random.

    Recognised are separate ``q/k/v/o_proj`` (Llama, Qwen, Mistral, Gemma and relatives) and GPT-2's fused ``c_attn``.
    """
    config = lm.config
    heads = config.num_attention_heads
    width = config.hidden_size
    head_dim = getattr(config, "head_dim", None) or width // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    parts = dict(layer.named_modules())
    attention = next((m for m in parts.values() if hasattr(m, "q_proj") and hasattr(m, "o_proj")), None)
    fused = next((m for m in parts.values() if hasattr(m, "c_attn") and hasattr(m, "c_proj")), None)
    norms: tuple[nn.Module, nn.Module] = (nn.Identity(), nn.Identity())
    if attention is not None:
        linears = [_linear(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
        if hasattr(attention, "q_norm") and hasattr(attention, "k_norm"):
            norms = (copy.deepcopy(attention.q_norm), copy.deepcopy(attention.k_norm))
    elif fused is not None and fused.c_attn.weight.shape == (width, 3 * width):
        kv_heads = heads
        weights, biases = fused.c_attn.weight.T.chunk(3), fused.c_attn.bias.chunk(3)
        linears = [_from_tensors(w, b) for w, b in zip(weights, biases, strict=True)]
        linears.append(_from_tensors(fused.c_proj.weight.T, fused.c_proj.bias))
    else:
        shapes = [(width, heads), (width, kv_heads), (width, kv_heads)]
        linears = [nn.Linear(w, n * head_dim, bias=False) for w, n in shapes]
        linears.append(nn.Linear(heads * head_dim, width, bias=False))
        for linear in linears:
            nn.init.normal_(linear.weight, std=getattr(config, "initializer_range", 0.02))
    norm = next((parts[name] for name in ("input_layernorm", "ln_1") if name in parts), None)
    norm = nn.LayerNorm(width) if norm is None else copy.deepcopy(norm)
    q, k, v, o = linears
    return HostAttention(norm, q, k, v, o, heads, kv_heads, head_dim, *norms)


def _linear(module: nn.Module) -> nn.Linear:
    return _from_tensors(module.weight, module.bias)  # type: ignore[arg-type]


def _from_tensors(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear
