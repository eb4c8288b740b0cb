"""What a fusion layer starts from: the wrapped model's own projections, whatever they are called and however laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.host import decoder_layers, host_attention, layers_read
from mlmf.model import MLMFModel
from mlmf.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

WIDTH, HEADS = 64, 4


def model(kind: str, **settings: Any) -> PreTrainedModel:
    shape = {"num_hidden_layers": 2, "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 96,
             "vocab_size": 40, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**shape, **settings}))
    made.set_attn_implementation("spy")
    with torch.no_grad():  # weights of norms are 1 or 0 at the start, biases 0: a copy that left them out would pass
        for name, parameter in made.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


@dataclass
class Seen:
    """What the host's own attention was given, before rotary positions: here they are switched off."""

    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    scale: float | None = None


SEEN = Seen()


def spy(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
    SEEN.query, SEEN.key, SEEN.value = query.detach(), key.detach(), value.detach()
    groups = query.shape[1] // key.shape[1]
    module.num_key_value_groups = groups
    kwargs.setdefault("scaling", query.shape[-1] ** -0.5)
    SEEN.scale = kwargs["scaling"]
    return eager_attention_forward(module, query, key, value, mask, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("spy", spy)

CASES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 3},
    "qwen2": {"num_key_value_heads": 1},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 24},
    "gemma": {"num_key_value_heads": 1, "head_dim": 32},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 32, "query_pre_attn_scalar": 11},
    "granite": {"num_key_value_heads": 2, "attention_multiplier": 0.37},
    "phi3": {"num_key_value_heads": 2, "rope_scaling": None},
    "phi": {},
    "gpt_neox": {},
    "gpt2": {"n_layer": 2, "n_embd": WIDTH, "n_head": HEADS},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": WIDTH},
    "starcoder2": {"num_key_value_heads": 2},
}


@pytest.mark.parametrize("kind", CASES)
@torch.no_grad()
def test_the_copies_give_the_hosts_own_queries_keys_and_values(kind: str) -> None:
    """Position 0 alone: a rotation by nothing, so that what attention is given is what the projections gave."""
    SEEN.query = SEEN.key = SEEN.value = None
    lm = model(kind, **CASES[kind])
    layer = decoder_layers(lm)[1]
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    host = host_attention(layer, lm)
    layer.register_forward_pre_hook(
        lambda _, args, kwargs: inputs.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    name = {"gpt2": "c_proj", "gpt_neox": "dense", "phi": "dense", "opt": "out_proj"}.get(kind, "o_proj")
    output = next(m for n, m in layer.named_modules() if n.endswith(f".{name}") and "mlp" not in n)
    output.register_forward_hook(lambda _, args, out: outputs.extend((args[0], out)))
    lm(torch.tensor([[7], [23]]), use_cache=False)
    x = host.norm(inputs[0])
    assert SEEN.query is not None and SEEN.key is not None and SEEN.value is not None
    assert (host.heads, host.kv_heads, host.head_dim) == (SEEN.query.shape[1], SEEN.key.shape[1], SEEN.query.shape[3])
    found = {
        "query": host.q_norm(host.q(x).view(2, 1, host.heads, host.head_dim)).transpose(1, 2),
        "key": host.k_norm(host.k(x).view(2, 1, host.kv_heads, host.head_dim)).transpose(1, 2),
        "value": host.v(x).view(2, 1, host.kv_heads, host.head_dim).transpose(1, 2),
    }
    if kind == "opt":  # it scales its queries before attention, not in it
        found["query"] = found["query"] * host.head_dim**-0.5
    for part, ours in found.items():
        torch.testing.assert_close(ours, getattr(SEEN, part), msg=lambda m, part=part: f"{part}: {m}")
    torch.testing.assert_close(host.o(outputs[0]), outputs[1])
    assert host.scale == (host.head_dim**-0.5 if kind == "opt" else SEEN.scale)


def test_copies_share_no_memory_with_the_layer() -> None:
    for kind in ("llama", "gpt_neox", "gpt2"):
        lm = model(kind, **CASES[kind])
        layer = decoder_layers(lm)[0]
        before = {name: p.clone() for name, p in layer.named_parameters()}
        host = host_attention(layer, lm)
        with torch.no_grad():
            for part in (host.norm, host.q, host.k, host.v, host.o):
                for parameter in part.parameters():
                    parameter.zero_()
        for name, parameter in layer.named_parameters():
            assert torch.equal(parameter, before[name]), (kind, name)


def test_a_norm_over_all_heads_at_once_is_left_out() -> None:
    """Its weights fit no single head; queries and keys of every head would be refused or wrong."""
    lm = model("olmo2")
    host = host_attention(decoder_layers(lm)[0], lm)
    assert isinstance(host.q_norm, nn.Identity) and isinstance(host.k_norm, nn.Identity)
    assert torch.equal(host.q.weight, decoder_layers(lm)[0].self_attn.q_proj.weight)


def test_an_unknown_layer_gets_random_projections_of_the_right_shape() -> None:
    lm = tiny_model("llama")
    host = host_attention(nn.Sequential(nn.Linear(64, 64)), lm)
    assert host.q.weight.shape == (64, 64)
    assert host.k.weight.shape == host.v.weight.shape == (32, 64)
    assert host.o.weight.shape == (64, 64)
    assert isinstance(host.norm, nn.LayerNorm)


def test_a_fused_projection_of_another_layout_is_not_copied() -> None:
    """Falcon's single key head: one long query, one key, one value, which the layout of GPT-NeoX would cut wrongly."""
    lm = model("falcon", multi_query=True, alibi=False, new_decoder_architecture=False)
    layer = decoder_layers(lm)[0]
    fused = layer.self_attention.query_key_value.weight
    host = host_attention(layer, lm)
    assert fused.shape[0] == 64 + 2 * 16 and host.q.weight.shape == (64, 64)
    assert not torch.equal(host.q.weight, fused[:64])


@pytest.mark.parametrize("depth", [1, 2, 4, 12, 30, 80])
def test_layers_are_spread_over_models_of_any_depth(depth: int) -> None:
    fusion_layers, key_layer = layers_read(MLMFConfig(), depth)
    assert (
        fusion_layers == sorted(set(fusion_layers)) and 0 <= key_layer <= fusion_layers[0] <= fusion_layers[-1] < depth
    )
    assert len(fusion_layers) == 5 or depth < 12


@pytest.mark.parametrize("kind", CASES)
@torch.no_grad()
def test_any_of_them_remembers_and_reads(kind: str) -> None:
    """Tied weights where the architecture ties them, a sliding window shorter than the prompt, one key head for four."""
    tied = {} if kind in ("gpt2", "opt", "gpt_neox", "phi") else {"tie_word_embeddings": True}
    lm = model(kind, **{**CASES[kind], **tied, "vocab_size": VOCAB_SIZE, "max_position_embeddings": 256})
    lm.set_attn_implementation("eager")
    ids = torch.tensor([[40, 41, 42, 43, 44, 45, 46, 47]])
    expected = lm(ids).logits
    was_tied = lm.get_output_embeddings().weight is lm.get_input_embeddings().weight
    config = MLMFConfig(fusion_layers=[0, 1], key_layer=1, key_dim=16, lora=LoraSettings(r=2))
    wrapped = MLMFModel(lm, tiny_tokenizer(), config).eval()
    memory = wrapped.remember([Session(0, None, (Turn("a", "Anna", "The cat is called Miso"),))], wrapped.init_state())
    assert torch.equal(wrapped(ids, state=memory).logits, expected)
    for fusion in wrapped.memory.fusions:
        fusion.g.fill_(0.5)
    read = wrapped(ids, state=memory).logits
    assert torch.isfinite(read).all() and not torch.allclose(read, expected, atol=1e-3)
    assert (lm.get_output_embeddings().weight is lm.get_input_embeddings().weight) == was_tied
    assert was_tied or not tied


SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 20,
}


def t5() -> PreTrainedModel:
    config = AutoConfig.for_model(
        "t5", vocab_size=20, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return AutoModelForSeq2SeqLM.from_config(config)


def mamba() -> PreTrainedModel:
    config = AutoConfig.for_model("mamba", num_hidden_layers=2, hidden_size=16, vocab_size=20, state_size=4)
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("lm", "reason"),
    [
        (t5, "no single list"),
        (lambda: AutoModelForCausalLM.from_config(AutoConfig.for_model("bert", **SMALL)), "both directions"),
        (lambda: AutoModelForCausalLM.from_config(AutoConfig.for_model("roberta", **SMALL)), "both directions"),
        (lambda: AutoModelForMaskedLM.from_config(AutoConfig.for_model("distilbert", n_layers=2, dim=16, n_heads=2,
                                                                      hidden_dim=16, vocab_size=20)), "both directions"),
        (lambda: AutoModel.from_config(AutoConfig.for_model("llama", **SMALL)), "no language modelling head"),
        (mamba, "no attention heads"),
    ],
    ids=["t5", "bert", "roberta", "distilbert", "headless", "mamba"],
)  # fmt: skip
def test_what_cannot_be_wrapped_is_refused_in_one_sentence(lm: Any, reason: str) -> None:
    made = lm()
    with pytest.raises(
        UserError, match=rf"{type(made).__name__} cannot be wrapped: .*{reason}.*decoder-only causal LM"
    ):
        MLMFModel(made, tiny_tokenizer(), MLMFConfig())


def test_a_bert_made_a_decoder_is_a_decoder() -> None:
    lm = AutoModelForCausalLM.from_config(AutoConfig.for_model("bert", is_decoder=True, **SMALL))
    assert len(decoder_layers(lm)) == 2
