"""A random model can write nothing but JSON of the schema, whichever rows of a batch end first."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from pydantic import BaseModel, Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from mlmf.llm import guided
from mlmf.llm.chat import Message
from mlmf.llm.local_chat import LocalChatModel
from mlmf.llm.structured import ask_for, parse
from mlmf.tiny import VOCAB_SIZE, tiny_tokenizer

Lm = tuple[PreTrainedModel, PreTrainedTokenizerBase]


class Kept(BaseModel):
    action: Literal["ADD", "NONE"]
    tags: list[Literal["cat", "a much longer word than cat"]] = Field(max_length=2)
    number: Literal[1, 2, 3] | None


CONVERSATIONS = [[Message("user", text)] for text in ("Hello?", "a" * 40, "No, never")]


def test_every_reply_is_of_the_schema_and_a_batch_changes_none(tiny_lm: Lm) -> None:
    pytest.importorskip("llguidance")
    model = LocalChatModel(*tiny_lm, name="tiny")
    replies = model.chat(CONVERSATIONS, 120, schema=Kept)
    assert all(parse(reply.text, Kept) for reply in replies)
    assert len({reply.new_tokens for reply in replies}) > 1  # rows left the batch at different times
    for conversation, reply in zip(CONVERSATIONS, replies, strict=True):
        assert model.chat([conversation], 120, schema=Kept)[0].text == reply.text
    assert model.is_guided
    assert ask_for(model, CONVERSATIONS[0], Kept, 120) == parse(replies[0].text, Kept)


def test_without_a_schema_nothing_changes(tiny_lm: Lm) -> None:
    pytest.importorskip("llguidance")
    model = LocalChatModel(*tiny_lm, name="tiny")
    before = model.chat(CONVERSATIONS, 12)
    model.chat(CONVERSATIONS, 40, schema=Kept)
    assert model.chat(CONVERSATIONS, 12) == before


def test_a_model_that_scores_more_tokens_than_there_are_is_guided_too() -> None:
    pytest.importorskip("llguidance")
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB_SIZE + 61, max_position_embeddings=512, **shape))
    model.generation_config.eos_token_id = tiny_tokenizer().eos_token_id
    (reply,) = LocalChatModel(model, tiny_tokenizer(), name="padded").chat(CONVERSATIONS[:1], 120, schema=Kept)
    assert parse(reply.text, Kept)


def test_where_nothing_can_guide_a_schema_changes_nothing(tiny_lm: Lm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guided, "find_spec", lambda name: None)
    model = LocalChatModel(*tiny_lm, name="tiny")
    assert not model.is_guided
    assert model.chat(CONVERSATIONS, 12, schema=Kept) == model.chat(CONVERSATIONS, 12)
