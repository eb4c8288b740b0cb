from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, T5Config

from mlmf.errors import UserError
from mlmf.memory.host import decoder_layers, host_attention
from mlmf.tiny import Architecture, tiny_model


@pytest.mark.parametrize(("architecture", "kv_heads"), [("llama", 2), ("qwen2", 2), ("qwen3", 2), ("gpt2", 4)])
def test_projections_are_those_of_the_layer(architecture: Architecture, kv_heads: int) -> None:
    lm = tiny_model(architecture)
    layers = decoder_layers(lm)
    assert len(layers) == 4
    host = host_attention(layers[1], lm)
    assert (host.heads, host.kv_heads, host.head_dim) == (4, kv_heads, 16)
    x = torch.randn(1, 5, 64)
    parts = dict(layers[1].named_modules())
    if architecture == "gpt2":
        expected = torch.split(parts["attn.c_attn"](x), 64, dim=-1)
        back = parts["attn.c_proj"](x)
    else:
        expected = tuple(parts[f"self_attn.{name}_proj"](x) for name in "qkv")
        back = parts["self_attn.o_proj"](x)
    for ours, theirs in zip((host.q(x), host.k(x), host.v(x), host.o(x)), (*expected, back), strict=True):
        torch.testing.assert_close(ours, theirs)
    norm = parts["ln_1" if architecture == "gpt2" else "input_layernorm"]
    torch.testing.assert_close(host.norm(x), norm(x))
    assert isinstance(host.q_norm, nn.Identity) == (architecture != "qwen3")


def test_copies_share_no_memory_with_the_layer() -> None:
    lm = tiny_model("llama")
    layer = decoder_layers(lm)[0]
    host = host_attention(layer, lm)
    before = layer.self_attn.q_proj.weight.clone()
    with torch.no_grad():
        host.q.weight.zero_()
        host.norm.weight.zero_()
    assert torch.equal(layer.self_attn.q_proj.weight, before)
    assert layer.input_layernorm.weight.all()


def test_an_unknown_layer_gets_random_projections_of_the_right_shape() -> None:
    lm = tiny_model("llama")
    host = host_attention(nn.Sequential(nn.Linear(64, 64)), lm)
    assert host.q.weight.shape == (64, 64)
    assert host.k.weight.shape == host.v.weight.shape == (32, 64)
    assert host.o.weight.shape == (64, 64)
    assert isinstance(host.norm, nn.LayerNorm)


def test_encoder_decoder_models_are_refused() -> None:
    config = T5Config(vocab_size=20, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0)
    with pytest.raises(UserError, match="decoder-only causal LM"):
        decoder_layers(AutoModelForSeq2SeqLM.from_config(config))
