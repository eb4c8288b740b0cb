"""A local chat model: its template, its batches, and what it does with what does not fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from mlmf.errors import UserError
from mlmf.llm.chat import ChatError, Message
from mlmf.llm.local_chat import LocalChatModel
from mlmf.tiny import tiny_model, tiny_tokenizer

CONVERSATIONS = [
    [Message("user", "Hello?")],
    [Message("system", "Be short."), Message("user", "Who adopted a cat?")],
    [Message("user", "Hi."), Message("assistant", "Yes?"), Message("user", "When?")],
]


def chat_model(**settings: int) -> LocalChatModel:
    return LocalChatModel(tiny_model("llama"), tiny_tokenizer(), name="tiny", **settings)


def templated(model: LocalChatModel, conversation: list[Message]) -> list[int]:
    messages = [{"role": one.role, "content": one.content} for one in conversation]
    text = model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(model.tokenizer(text, add_special_tokens=False).input_ids)


def test_a_batch_replies_as_each_conversation_alone_decoded_by_hand() -> None:
    model = chat_model()
    replies = model.chat(CONVERSATIONS, 5)
    for conversation, reply in zip(CONVERSATIONS, replies, strict=True):
        row = templated(model, conversation)
        assert reply.prompt_tokens == len(row)
        for _ in range(reply.new_tokens):
            with torch.no_grad():
                row.append(int(model.model(torch.tensor([row])).logits[0, -1].argmax()))
        written = row[reply.prompt_tokens :]
        assert reply.text == model.tokenizer.decode(written, skip_special_tokens=True).strip()
        assert written[-1] == model.tokenizer.eos_token_id or reply.new_tokens == 5
    assert chat_model(max_batch_tokens=1).chat(CONVERSATIONS, 5) == replies


def test_a_reply_keeps_all_its_lines() -> None:
    model = chat_model()
    newline, letter = (model.tokenizer(text).input_ids[0] for text in ("\n", "x"))
    script = [letter, newline, letter, model.tokenizer.eos_token_id]

    def follow_script(module: object, args: object, kwargs: dict, output: object) -> None:
        output.logits[:] = 0
        output.logits[..., script[len(written)]] = 1
        written.append(1)

    written: list[int] = []
    model.model.register_forward_hook(follow_script, with_kwargs=True)
    (reply,) = model.chat(CONVERSATIONS[:1], 8)
    assert (reply.text, reply.new_tokens) == ("x\nx", 4)


def test_threads_share_a_model() -> None:
    model = chat_model()
    alone = model.chat(CONVERSATIONS, 4)
    with ThreadPoolExecutor(3) as threads:
        replies = list(threads.map(lambda one: model.chat([one], 4)[0], CONVERSATIONS * 3))
    assert replies == alone * 3


def test_a_model_without_a_system_role_reads_those_words_first() -> None:
    model = chat_model()
    refusal = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    model.tokenizer.chat_template = refusal + model.tokenizer.chat_template
    (reply,) = model.chat([CONVERSATIONS[1]], 4)
    folded = [Message("user", "Be short.\n\nWho adopted a cat?")]
    assert [reply] == model.chat([folded], 4)


def test_a_model_without_a_chat_template_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="model 'plain' has no chat template"):
        LocalChatModel(tiny_model("llama"), tokenizer, name="plain")


def test_a_conversation_beyond_the_window_is_a_failed_reply() -> None:
    model = chat_model()
    with pytest.raises(ChatError, match=f"exceed the model's window of {model.context_window}"):
        model.chat([[Message("user", "x" * model.context_window)]], 4)


def test_nothing_to_say_is_no_error() -> None:
    assert chat_model().chat([], 4) == []
