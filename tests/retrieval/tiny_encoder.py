"""A random sentence encoder in a folder: nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from mlmf.tiny import VOCAB_SIZE, tiny_tokenizer


def save_tiny_encoder(folder: Path) -> Path:
    """Save a plain two-layer BERT and its tokenizer."""
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=VOCAB_SIZE, **shape)).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "right"  # BERT counts its positions from the left
    tokenizer.chat_template = None  # with one, texts are taken for messages
    tokenizer.save_pretrained(folder)
    return folder
