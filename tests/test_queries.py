from __future__ import annotations

import pytest
import torch

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.model import MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer

QUERIES = [[5, 60, 7], [80, 33, 9, 10, 11], [12], [5, 60, 7]]


def build(architecture: Architecture = "llama") -> MLMFModel:
    return MLMFModel(tiny_model(architecture), tiny_tokenizer(), MLMFConfig(lora=LoraSettings(r=4))).eval()


def count_passes(model: MLMFModel) -> list[int]:
    """Grows by the size of each batch that the base model reads."""
    sizes: list[int] = []
    model.lm.get_input_embeddings().register_forward_hook(lambda _, args, output: sizes.append(args[0].shape[0]))
    return sizes


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@torch.no_grad()
def test_states_are_the_base_models_after_a_newline(architecture: Architecture) -> None:
    model = build(architecture)
    states, tokens, mask = model.queries(QUERIES)
    assert states.shape[:2] == tokens.shape == mask.shape == (4, 5)
    newline = model.tokenizer("\n")["input_ids"]
    for row, query in enumerate(QUERIES):
        ids = torch.tensor([newline + query])
        hidden = tiny_model(architecture)(ids, output_hidden_states=True).hidden_states[model.key_layer]
        torch.testing.assert_close(states[row, mask[row]], hidden[0, len(newline) :], rtol=1e-4, atol=1e-4)
        assert tokens[row, mask[row]].tolist() == query


def test_a_kept_query_is_read_once_and_the_same_in_every_batch() -> None:
    model = build()
    expected = model.queries(QUERIES)
    passes = count_passes(model)
    model.queries.keep(QUERIES)
    assert passes == [3], "each distinct query once"
    model.queries.keep(QUERIES[:2])
    kept = model.queries(QUERIES)
    assert passes == [3]
    for one, other in zip(kept, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    alone = model.queries(QUERIES[:1])
    assert torch.equal(alone[0][0], kept[0][0, :3]) and torch.equal(alone[0][0], kept[0][3, :3])
    mixed = model.queries([[1, 2, 3], QUERIES[1]])
    assert passes == [3, 1], "only what is not known is read"
    assert torch.equal(mixed[0][1], kept[0][1]) and mixed[1][0].tolist() == [1, 2, 3, 0, 0]


def test_no_more_is_kept_than_allowed() -> None:
    model = build()
    width = model.memory.width
    many = [[i] * 50 for i in range(5, 120)]
    model.queries.keep(many, limit=60 * 50 * width * 4)
    passes = count_passes(model)
    model.queries(many)
    assert 0 < passes[0] < len(many)
    assert (len(many) - passes[0]) * 50 * width * 4 <= 60 * 50 * width * 4


def test_kept_states_follow_the_models_dtype() -> None:
    model = build()
    model.queries.keep(QUERIES)
    assert model.double().queries(QUERIES)[0].dtype == torch.float64


def test_of_a_query_longer_than_the_window_the_end_is_read() -> None:
    model = build()
    model.lm.config.max_position_embeddings = 8
    states, tokens, _ = model.queries([list(range(5, 30))])
    assert tokens[0].tolist() == list(range(23, 30)) and states.shape[1] == 7


def test_an_empty_query_has_no_keys() -> None:
    states, tokens, mask = build().queries([[], [5, 6]])
    assert not mask[0].any() and mask[1].all() and tokens.dtype == torch.long
    assert states.shape[1] == 2
