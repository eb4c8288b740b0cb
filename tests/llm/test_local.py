"""Batches, padding and the shared prefix change nothing about what a model answers."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from mlmf.llm.local import LocalLanguageModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer

PREFIX = "[8 May 2023] Caroline: I adopted a cat.\n[9 May 2023] Melanie: What is it called?\n\n"
SUFFIXES = ["Question: What?\nAnswer:", "Question: What did Caroline adopt?\nAnswer:", "Q: Who?\nA:"]


def greedy_by_hand(model: PreTrainedModel, ids: list[int], count: int, end_id: int) -> list[int]:
    """The plainest greedy decoding there is: no cache, no padding, no batch; the end may not come first."""
    row = list(ids)
    for step in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([row])).logits[0, -1].clone()
        if step == 0:
            logits[end_id] = -torch.inf
        row.append(int(logits.argmax()))
    return row[len(ids) :]


def local(architecture: Architecture = "llama", **settings: int | bool) -> LocalLanguageModel:
    return LocalLanguageModel(tiny_model(architecture), tiny_tokenizer(), **settings)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2", "mistral"])
def test_a_padded_batch_answers_like_one_prompt_decoded_by_hand(architecture: Architecture) -> None:
    language_model = local(architecture)
    prompts = [PREFIX + suffix for suffix in SUFFIXES]
    completions = language_model.complete(prompts, 6)
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = language_model.tokenizer(prompt).input_ids
        end_id = language_model.tokenizer.eos_token_id
        written = greedy_by_hand(language_model.model, ids, 6, end_id)
        ends = [position for position, token in enumerate(written) if token == end_id]
        text = language_model.tokenizer.decode(written[: ends[0]] if ends else written, skip_special_tokens=True)
        assert completion.text == (text.strip().splitlines() or [""])[0].strip()
        assert completion.prompt_tokens == len(ids)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3", "mistral", "gemma", "gpt_neox"])
def test_a_shared_prefix_gives_the_answers_of_the_plain_path(architecture: Architecture) -> None:
    plain = local(architecture).complete([PREFIX + suffix for suffix in SUFFIXES], 8)
    language_model = local(architecture)
    assert language_model.complete_with_prefix(PREFIX, SUFFIXES, 8) == plain
    # the second call finds the cache of the first, which generation must not have touched
    assert language_model.complete_with_prefix(PREFIX, SUFFIXES[::-1], 8) == plain[::-1]
    assert language_model.complete_with_prefix("Another\n", ["Q:"], 8) == local(architecture).complete(
        ["Another\nQ:"], 8
    )


def test_the_prefix_is_read_once() -> None:
    language_model = local()
    read: list[int] = []
    language_model.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    language_model.complete_with_prefix(PREFIX, SUFFIXES, 2)
    language_model.complete_with_prefix(PREFIX, SUFFIXES, 2)
    longest_suffix = max(language_model.count_tokens(suffix) for suffix in SUFFIXES)
    assert read[0] == language_model.count_tokens(PREFIX)
    assert max(read[1:]) == longest_suffix


def test_a_small_batch_bound_changes_no_answer() -> None:
    prompts = [PREFIX + suffix for suffix in SUFFIXES]
    assert local(max_batch_tokens=1).complete(prompts, 8) == local().complete(prompts, 8)


def test_a_chat_template_wraps_the_whole_prompt_on_both_paths() -> None:
    language_model = local(chat=True)
    messages = [{"role": "user", "content": PREFIX + SUFFIXES[0]}]
    wrapped = language_model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = language_model.tokenizer(wrapped, add_special_tokens=False).input_ids
    plain = language_model.complete([PREFIX + SUFFIXES[0]], 4)
    assert plain[0].prompt_tokens == len(ids)
    assert language_model.complete_with_prefix(PREFIX, SUFFIXES[:1], 4) == plain


def test_an_answer_is_the_first_line_that_holds_something() -> None:
    language_model = local()
    newline, letter = (language_model.tokenizer(text).input_ids[0] for text in ("\n", "x"))
    script = [newline, letter, letter, newline, letter, letter]

    def follow_script(module: object, args: object, kwargs: dict, output: object) -> None:
        output.logits[:] = 0
        output.logits[..., script[len(written)]] = 1
        written.append(1)

    written: list[int] = []
    language_model.model.register_forward_hook(follow_script, with_kwargs=True)
    completion = language_model.complete(["Q:"], 6)[0]
    assert completion.text == "xx"
    assert len(written) == 4


def test_a_model_that_would_end_at_once_says_something() -> None:
    language_model = local()
    end_id = language_model.tokenizer.eos_token_id
    letter = language_model.tokenizer("x").input_ids[0]

    def prefer_the_end(module: object, args: object, kwargs: dict, output: object) -> None:
        output.logits[:] = 0
        output.logits[..., end_id] = 2
        output.logits[..., letter] = 1

    language_model.model.register_forward_hook(prefer_the_end, with_kwargs=True)
    completion = language_model.complete(["Q:"], 6)[0]
    assert (completion.text, completion.new_tokens) == ("x", 2)


def test_a_prompt_beyond_the_window_is_refused() -> None:
    language_model = local()
    with pytest.raises(ValueError, match=f"exceed the model's window of {language_model.context_window}"):
        language_model.complete(["x" * language_model.context_window], 1)


def test_nothing_to_complete_is_no_error() -> None:
    assert local().complete([], 4) == []
    assert local().complete_with_prefix(PREFIX, [], 4) == []
