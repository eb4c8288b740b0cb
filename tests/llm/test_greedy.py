"""Rows that end leave the batch, what is written is counted to the token, and decoding is timed apart from reading."""

from __future__ import annotations

from typing import Any

import pytest

from mlmf.llm.greedy import GreedyDecoder, Written
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer

PROMPTS = ["count down from 2", "from 9", "please from 6", "from 0"]


def countdown(architecture: Architecture, end: str = "\n") -> tuple[GreedyDecoder, list[int]]:
    """A model that writes the digit below the last one, then ``end``; and how many rows it was given at each pass."""
    tokenizer = tiny_tokenizer()
    decoder = GreedyDecoder(tiny_model(architecture), tokenizer, max_batch_tokens=65_536)
    digits = [tokenizer(str(digit)).input_ids[-1] for digit in range(10)]
    after = dict(zip(digits[1:], digits[:-1], strict=True)) | {digits[0]: tokenizer(end).input_ids[-1]}
    rows: list[int] = []

    def write(module: object, args: object, kwargs: dict[str, Any], output: Any) -> None:
        last = kwargs["input_ids"][:, -1].tolist()
        rows.append(len(last))
        output.logits[:] = 0
        for row, token in enumerate(last):
            output.logits[row, -1, after.get(token, digits[5])] = 1

    decoder.model.register_forward_hook(write, with_kwargs=True)
    return decoder, rows


def write(decoder: GreedyDecoder, shared: int = 0) -> list[Written]:
    ids = [list(decoder.tokenizer(prompt).input_ids) for prompt in PROMPTS]
    return decoder.write(ids, 12, shared=shared, one_line=True)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2", "gpt_neox"])
def test_rows_leave_the_batch_when_their_line_ends(architecture: Architecture) -> None:
    decoder, rows = countdown(architecture)
    found = write(decoder)
    assert [one.text.split("\n")[0] for one in found] == ["10", "876543210", "543210", ""]
    assert [one.tokens for one in found[:3]] == [3, 10, 7]
    assert (rows[0], rows[-1]) == (4, 1)
    assert rows == sorted(rows, reverse=True)
    # each row alone says the same
    for prompt, one in zip(PROMPTS[:3], found, strict=False):
        alone, _ = countdown(architecture)
        (single,) = alone.write([list(alone.tokenizer(prompt).input_ids)], 12, one_line=True)
        assert (single.text.split("\n")[0], single.tokens) == (one.text.split("\n")[0], one.tokens)


def test_a_model_that_sees_a_window_keeps_its_rows_together() -> None:
    decoder, rows = countdown("mistral")
    assert not decoder.can_share_a_prefix
    assert [one.tokens for one in write(decoder)[:3]] == [3, 10, 7]
    assert set(rows) == {4}


def test_writing_is_timed_from_the_first_token_on() -> None:
    decoder, _ = countdown("llama")
    found = write(decoder)
    assert len({one.seconds_decoding for one in found}) == 1
    assert found[0].seconds_decoding > 0
    ids = list(decoder.tokenizer("from 9").input_ids)
    assert decoder.write([ids], 1, one_line=True)[0].seconds_decoding == 0
