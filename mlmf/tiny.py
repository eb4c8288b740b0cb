"""Tiny random language models and a byte-level tokenizer, built in code: no file, no download, milliseconds to make.

They are the wrapped model of the ``smoke`` configs (``base_model: tiny-random``) and of the unit tests.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from mlmf.errors import unknown_name

Architecture = Literal["llama", "gpt2", "qwen2", "qwen3", "mistral", "gemma", "gpt_neox"]

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
VOCAB_SIZE = 256 + 3
POSITIONS = 2048
HEADS = 4

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ bos_token + message['role'] + '\\n' + message['content'] + eos_token + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token + 'assistant\\n' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte of UTF-8, plus pad, bos and eos (ids 0, 1, 2); pads on the left; has a chat template."""
    tokens = [PAD, BOS, EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        model_max_length=POSITIONS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(
    architecture: Architecture = "llama",
    *,
    layers: int = 4,
    width: int = 64,
    vocab_size: int = VOCAB_SIZE,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    """A random causal LM of the given architecture in eval mode, the same for the same seed.

    Args:
        architecture: a ``model_type`` of transformers.
        layers: decoder layers.
        width: hidden size, a multiple of 4 (the number of heads; grouped-query architectures have 2 key heads).
        vocab_size: rows of the embedding; the default fits :func:`tiny_tokenizer`.
        seed: seed of the weights; the global random state is left as it was.
        dtype: of the weights, which are drawn in float32 and then rounded.

    Raises:
        UserError: unknown architecture.
    """
    if architecture not in get_args(Architecture):
        raise unknown_name("tiny architecture", architecture, get_args(Architecture))
    config = AutoConfig.for_model(
        architecture,
        vocab_size=vocab_size,
        # at the default 0.02 a model this narrow hardly mixes its tokens, and tests of attention would see nothing
        initializer_range=0.1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **_shape(architecture, layers, width),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():  # model.to(dtype) would also round the frequencies of rotary positions
        weight.data = weight.data.to(dtype)
    return model.eval()


def _shape(architecture: Architecture, layers: int, width: int) -> dict[str, Any]:
    if architecture == "gpt2":
        return {"n_layer": layers, "n_embd": width, "n_head": HEADS, "n_positions": POSITIONS}
    shape: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": HEADS,
        "max_position_embeddings": POSITIONS,
    }
    if architecture != "gpt_neox":
        shape |= {"num_key_value_heads": HEADS // 2, "head_dim": width // HEADS}
    return shape
