"""The wrapped model's structure, found and not assumed: its decoder layers and the projections of their attention."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.pytorch_utils import Conv1D

from mlmf.config.model import MLMFConfig
from mlmf.errors import UserError

_SEPARATE = ("q_proj", "k_proj", "v_proj")
_FUSED = ("qkv_proj", "c_attn", "query_key_value")
_OUTPUTS = ("o_proj", "out_proj", "dense", "c_proj")
_NORMS = ("input_layernorm", "ln_1", "self_attn_layer_norm")


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
    scale: float
    """What the product of query and key is multiplied by; ``head_dim**-0.5`` in most models."""


def decoder_layers(lm: PreTrainedModel) -> nn.ModuleList:
    """The list of decoder layers of a causal LM.

    Raises:
        UserError: the model has no single list of decoder layers, reads its text in both directions, or has no language
            modelling head to generate with.
    """
    depth = getattr(lm.config, "num_hidden_layers", None)
    found = [m for m in lm.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
    reason = None
    if lm.config.is_encoder_decoder or not found:
        reason = f"it has no single list of {depth} decoder layers"
    elif lm.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(lm.config, "is_decoder", False):
        reason = "it reads its text in both directions"
    elif not lm.can_generate():
        reason = "it has no language modelling head to generate with"
    elif not getattr(lm.config, "num_attention_heads", None):
        reason = "it has no attention heads"
    if reason is not None:
        raise UserError(f"{type(lm).__name__} cannot be wrapped: {reason}. Use a decoder-only causal LM.")
    return found[0]


def layers_read(config: MLMFConfig, depth: int) -> tuple[list[int], int]:
    """Before which decoder layers memory is fused in, and whose input makes keys.

    Without a setting there are five fusion layers, from a quarter of the way to four fifths (8, 12, ..., 24 of 30), and
    keys come from a fifth of the way.

    Args:
        config: settings of the model.
        depth: how many decoder layers there are.

    Raises:
        UserError: a setting names a layer that does not exist.
    """
    first, last = round(depth * 4 / 15), min(round(depth * 4 / 5), depth - 1)
    fusion_layers = config.fusion_layers or sorted({round(first + (last - first) * i / 4) for i in range(5)})
    key_layer = depth // 5 if config.key_layer is None else config.key_layer
    for index in (*fusion_layers, key_layer):
        if not 0 <= index < depth:
            raise UserError(f"layer {index} does not exist: {config.base_model} has layers 0 to {depth - 1}")
    return fusion_layers, key_layer


def host_attention(layer: nn.Module, lm: PreTrainedModel) -> HostAttention:
    """Copy a decoder layer's attention; projections that are not recognised are made anew at random.

    Recognised are separate ``q/k/v_proj`` (Llama, Qwen, Mistral, Gemma, OPT and relatives), their stack ``qkv_proj``
    (Phi-3), GPT-2's ``c_attn``, and ``query_key_value`` with q, k and v of each head side by side (GPT-NeoX, BLOOM).
    The scale of the product is the layer's own (Gemma 2's ``query_pre_attn_scalar``, Granite's
    ``attention_multiplier``). A cap on its logits (Gemma 2's ``attn_logit_softcapping``) is left out: the read adds the
    weight of the find to the same logits, which the cap would flatten.
    """
    config = lm.config
    heads = config.num_attention_heads
    width = config.hidden_size
    head_dim = getattr(config, "head_dim", None) or width // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    parts = dict(layer.named_modules())
    norms: tuple[nn.Module, nn.Module] = (nn.Identity(), nn.Identity())
    scale = head_dim**-0.5
    recognised = _projections(parts, (heads, kv_heads, head_dim))
    if recognised is None:
        shapes = [(width, heads), (width, kv_heads), (width, kv_heads)]
        linears = [nn.Linear(w, n * head_dim, bias=False) for w, n in shapes]
        linears.append(nn.Linear(heads * head_dim, width, bias=False))
        for linear in linears:
            nn.init.normal_(linear.weight, std=getattr(config, "initializer_range", 0.02))
    else:
        attention, linears = recognised
        scale = float(getattr(attention, "scaling", scale))
        kv_heads = linears[1].out_features // head_dim
        pair = (getattr(attention, "q_norm", None), getattr(attention, "k_norm", None))
        # a norm over all heads at once, or with weights for each, has no place here: queries are normed head by head
        if all(isinstance(n, nn.Module) and [p.numel() for p in n.parameters()] == [head_dim] for n in pair):
            norms = (copy.deepcopy(pair[0]), copy.deepcopy(pair[1]))  # type: ignore[assignment]
    norm = next((parts[name] for name in _NORMS if name in parts), None)
    norm = nn.LayerNorm(width) if norm is None else copy.deepcopy(norm)
    # the projections that follow can take over any weight it might learn; frozen, most of a memory needs no gradient
    norm.requires_grad_(False)
    q, k, v, o = linears
    return HostAttention(norm, q, k, v, o, heads, kv_heads, head_dim, *norms, scale)


def _projections(parts: dict[str, nn.Module], shape: tuple[int, int, int]) -> tuple[nn.Module, list[nn.Linear]] | None:
    """The attention module among a layer's parts and copies of its q, k, v and o; ``None`` if it is not recognised."""
    heads, kv_heads, head_dim = shape
    sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    for attention in parts.values():
        output = next((getattr(attention, name) for name in _OUTPUTS if hasattr(attention, name)), None)
        if output is None:
            continue
        if all(hasattr(attention, name) for name in _SEPARATE):
            return attention, [_linear(module) for module in (*(getattr(attention, n) for n in _SEPARATE), output)]
        name = next((name for name in _FUSED if hasattr(attention, name)), None)
        if name is None:
            continue
        fused = _linear(getattr(attention, name))
        if fused.out_features != sum(sizes):
            return None
        rows = torch.arange(sum(sizes))
        if name == "query_key_value":
            if kv_heads != heads:
                return None
            rows = rows.view(heads, 3, head_dim).transpose(0, 1).flatten()
        return attention, [*(_rows(fused, index) for index in rows.split(sizes)), _linear(output)]
    return None


def _linear(module: nn.Module) -> nn.Linear:
    """A copy; GPT-2's ``Conv1D`` keeps its weight the other way round."""
    weight: Tensor = module.weight.T if isinstance(module, Conv1D) else module.weight  # type: ignore[assignment]
    return _from_tensors(weight, module.bias)  # type: ignore[arg-type]


def _rows(linear: nn.Linear, index: Tensor) -> nn.Linear:
    return _from_tensors(linear.weight[index], None if linear.bias is None else linear.bias[index])


def _from_tensors(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear
