"""Small real models of every family, wrapped with memory whose gates are open, and histories to remember."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

WINDOW = 12
"""Sliding window of ``mistral-window``, in tokens: shorter than every session and every prompt of these tests."""
VARIANTS: dict[str, tuple[Architecture, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-one-key-head": ("llama", {"num_key_value_heads": 1}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral-window": ("mistral", {"sliding_window": WINDOW}),
    "gemma": ("gemma", {"head_dim": 24}),
    "gpt2": ("gpt2", {}),
    "gpt_neox": ("gpt_neox", {}),
}
"""Name of a base model to its family and what it changes there. Gemma's heads are wider than its share of the width."""

MakeBase = Callable[..., PreTrainedModel]
MakeModel = Callable[..., MLMFModel]
Remember = Callable[[MLMFModel, Sequence[Sequence[Session]]], MemoryState]
Pad = Callable[[PreTrainedTokenizerBase, Sequence[str], int], tuple[Tensor, Tensor]]


def variant(name: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    architecture, changes = VARIANTS[name]
    if not changes:
        return tiny_model(architecture, dtype=dtype)
    config = copy.deepcopy(tiny_model(architecture).config)
    config.update(changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = type(tiny_model(architecture))(config)
    for weight in model.parameters():  # rotary frequencies are buffers and stay exact
        weight.data = weight.data.to(dtype)
    return model.eval()


@pytest.fixture(scope="session")
def make_base() -> MakeBase:
    """A base model by its name in ``VARIANTS``, always the same; optionally its dtype."""
    return variant


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """A base with memory. ``open_gates=True`` opens the gates and sets adapters that are not zero."""

    def make(
        name: str, *, open_gates: bool = False, dtype: torch.dtype = torch.float32, **settings: object
    ) -> MLMFModel:
        config = MLMFConfig(**{"lora": LoraSettings(r=4), "recall_nodes": 3, **settings})  # type: ignore[arg-type]
        model = MLMFModel(variant(name, dtype), tiny_tokenizer(), config).eval()
        if not open_gates:
            return model
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "lora_B" in parameter_name:
                    parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
                elif parameter_name.endswith(".g"):
                    parameter.fill_(0.5)
            model.memory.find_weight.fill_(0.3)
            if model.memory.whose is not None:
                model.memory.whose.copy_(torch.randn(model.memory.whose.shape, generator=generator))
        return model

    return make


def session(index: int, *texts: str) -> Session:
    turns = tuple(Turn(f"D{index}:{i}", ("Anna", "Ben")[i % 2], text) for i, text in enumerate(texts))
    return Session(index, datetime(2023, 5, index + 1), turns)


@pytest.fixture(scope="session")
def histories() -> list[list[Session]]:
    """Three conversations of three sessions, one and none."""
    return [
        [
            session(0, "I adopted a cat called Miso", "how sweet"),
            session(1, "My sister lives in Oslo", "far away", "she likes it"),
            session(2, "We sold the old boat", "a pity"),
        ],
        [session(0, "The exam went badly", "oh no", "I bought a red bicycle")],
        [],
    ]


@pytest.fixture(scope="session")
def remember() -> Remember:
    """A state that holds whole conversations, which may differ in their number of sessions."""

    @torch.no_grad()
    def write(model: MLMFModel, conversations: Sequence[Sequence[Session]]) -> MemoryState:
        state = model.init_state(len(conversations))
        for t in range(max(map(len, conversations))):
            state = model.remember([past[t] if t < len(past) else None for past in conversations], state)
        return state

    return write


@pytest.fixture(scope="session")
def pad() -> Pad:
    """Texts as ids and mask, padded on the left to the longest and ``extra`` tokens more."""

    def padded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], extra: int = 0) -> tuple[Tensor, Tensor]:
        rows = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        size = max(map(len, rows)) + extra
        ids = torch.tensor([[tokenizer.pad_token_id] * (size - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (size - len(row)) + [1] * len(row) for row in rows])
        return ids, mask

    return padded
