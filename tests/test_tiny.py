from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlmf.errors import UserError
from mlmf.tiny import VOCAB_SIZE, Architecture, tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


@pytest.mark.parametrize("architecture", get_args(Architecture))
def test_every_architecture_has_the_asked_shape_and_runs(architecture: Architecture) -> None:
    model = tiny_model(architecture, layers=3, width=32)
    assert model.config.model_type == architecture
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (3, 32)
    assert model.dtype == torch.float32
    assert not model.training
    logits = model(torch.tensor([[5, 6, 7]])).logits
    assert logits.shape == (1, 3, VOCAB_SIZE)
    # a model that mixes its tokens: the last position sees the first
    assert not torch.allclose(logits[:, -1], model(torch.tensor([[9, 6, 7]])).logits[:, -1], atol=1e-3)


def test_seed_decides_the_weights_and_global_randomness_is_untouched() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    one, same, other = tiny_model(seed=1), tiny_model(seed=1), tiny_model(seed=2)
    assert torch.equal(torch.rand(4), expected)
    pairs = zip(one.parameters(), same.parameters(), other.parameters(), strict=True)
    matrices = [triple for triple in pairs if triple[0].dim() == 2]
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in matrices)


def test_bfloat16_keeps_the_rotary_frequencies() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.model.rotary_emb.inv_freq, tiny_model("llama").model.rotary_emb.inv_freq)


def test_unknown_architecture() -> None:
    with pytest.raises(UserError, match="Did you mean 'llama'"):
        tiny_model("lama")  # type: ignore[arg-type]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_every_text_survives_one_token_per_byte(text: str) -> None:
    ids = TOKENIZER(text).input_ids
    assert len(ids) == len(text.encode()) or "<" in text
    assert TOKENIZER.decode(ids) == text


def test_batches_are_padded_on_the_left() -> None:
    batch = TOKENIZER(["ab", "c"], padding=True, return_tensors="pt")
    assert batch.attention_mask.tolist() == [[1, 1], [0, 1]]
    assert batch.input_ids[1, 0] == TOKENIZER.pad_token_id == 0


def test_chat_template_opens_the_assistants_turn() -> None:
    messages = [{"role": "user", "content": "hi"}]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<bos>user\nhi<eos>\n<bos>assistant\n"
