"""Sizes of the models that the GPU recipes train, so that ``train.py --dry_run`` can plan a run without their weights.

Public facts of their ``config.json`` files; nothing is ever trained with these instead of the file.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from mlmf.errors import UserError
from mlmf.hub import first_line

KNOWN: dict[str, dict[str, Any]] = {
    "HuggingFaceTB/SmolLM2-1.7B": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 49_152, "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-4B": {
        "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
        "max_position_embeddings": 40_960, "tie_word_embeddings": True,
    },
    "meta-llama/Llama-3.1-8B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
"""By hub id; ids that go on from one of these, such as ``-Instruct``, have the same sizes."""


def architecture(name: str) -> PreTrainedConfig:
    """The config of a model by its hub id, from :data:`KNOWN` or else from the hub.

    Raises:
        UserError: it is not known here, and the hub does not give it.
    """
    for known, facts in KNOWN.items():
        if name.startswith(known):
            return AutoConfig.for_model(**facts)
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"base_model {name!r} is not here, and neither is its config.json: {first_line(error)}. Without them "
            f"sizes are known of {', '.join(KNOWN)}"
        ) from error


def hollow_model(name: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """A causal LM on the meta device: shapes and types as in ``name``, and no numbers."""
    config = architecture(name)
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model
