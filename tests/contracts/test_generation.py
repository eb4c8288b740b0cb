"""Every way transformers generates works with memory, and each row reads its own."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import TextIteratorStreamer

from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
ASKED = ["Question: Where does the sister live?\nAnswer:", "What was red then?"]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    return make_model("llama", open_gates=True)


@pytest.fixture(scope="module")
def state(model: MLMFModel, remember: Callable[..., MemoryState], histories: list[Any]) -> MemoryState:
    return remember(model, histories[:2])


@pytest.fixture(scope="module")
def prompt(model: MLMFModel, pad: Any) -> tuple[Tensor, Tensor]:
    ids: tuple[Tensor, Tensor] = pad(model.tokenizer, ASKED, 0)
    return ids


def sample(model: MLMFModel, prompt: tuple[Tensor, Tensor], seed: int, **settings: Any) -> Any:
    torch.manual_seed(seed)
    return model.generate(*prompt, do_sample=True, max_new_tokens=8, min_new_tokens=8, **settings)


def test_the_first_token_generated_is_the_most_likely_one_of_the_forward_pass(
    model: MLMFModel, state: MemoryState, prompt: tuple[Tensor, Tensor]
) -> None:
    with torch.no_grad():
        expected = model(*prompt, state=state).logits[:, -1].argmax(-1)
    generated = model.generate(*prompt, state=state, max_new_tokens=1, do_sample=False)
    assert torch.equal(generated[:, -1], expected)


def test_sampling_repeats_under_a_seed_and_depends_on_the_memory(
    model: MLMFModel, state: MemoryState, prompt: tuple[Tensor, Tensor]
) -> None:
    first = sample(model, prompt, 3, state=state)
    assert torch.equal(first, sample(model, prompt, 3, state=state))
    assert not torch.equal(first, sample(model, prompt, 4, state=state))
    assert not torch.equal(first, sample(model, prompt, 3))


@pytest.mark.parametrize("batch", [1, 2], ids=["one memory for all", "a memory per row"])
@torch.no_grad()
def test_each_returned_sequence_was_drawn_with_the_memory_of_its_row(
    model: MLMFModel, state: MemoryState, prompt: tuple[Tensor, Tensor], batch: int
) -> None:
    memory = state.select(range(batch))
    drawn = sample(
        model, prompt, 0, state=memory, num_return_sequences=3, output_logits=True, return_dict_in_generate=True
    )
    assert drawn.sequences.shape[0] == 6
    n = prompt[0].shape[1]
    for number, sequence in enumerate(drawn.sequences):
        row = number // 3
        keep = torch.cat([prompt[1][row], torch.ones(8, dtype=torch.long)]).bool()
        query = model.query_keys([prompt[0][row][prompt[1][row].bool()].tolist()])
        forced = model(sequence[None, keep], state=state.select([row % batch]), query=query).logits[0, -9:-1]
        logits = torch.stack([step[number] for step in drawn.logits])
        torch.testing.assert_close(logits, forced, **CLOSE)
    assert len({tuple(sequence[n:].tolist()) for sequence in drawn.sequences}) > 3


def test_several_beams_per_row_are_those_of_the_row_alone(
    model: MLMFModel, state: MemoryState, prompt: tuple[Tensor, Tensor]
) -> None:
    settings: dict[str, Any] = {
        "num_beams": 4, "num_return_sequences": 2, "do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6,
        "output_scores": True, "return_dict_in_generate": True,
    }  # fmt: skip
    together: Any = model.generate(*prompt, state=state, **settings)
    for row in range(2):
        keep = prompt[1][row].bool()
        alone: Any = model.generate(prompt[0][row : row + 1, keep], state=state.select([row]), **settings)
        mine = slice(2 * row, 2 * row + 2)
        assert torch.equal(together.sequences[mine, -6:], alone.sequences[:, -6:])
        torch.testing.assert_close(together.sequences_scores[mine], alone.sequences_scores, **CLOSE)


def test_a_streamed_answer_is_the_answer(model: MLMFModel, state: MemoryState, prompt: tuple[Tensor, Tensor]) -> None:
    ids = prompt[0][:1]
    memory = state.select([0])
    streamer = TextIteratorStreamer(model.tokenizer, skip_prompt=True, timeout=30)
    settings: dict[str, Any] = {"state": memory, "max_new_tokens": 12, "do_sample": False}
    thread = threading.Thread(target=model.generate, args=(ids,), kwargs={**settings, "streamer": streamer})
    thread.start()
    pieces = list(streamer)
    thread.join()
    whole = model.generate(ids, **settings)
    assert "".join(pieces) == model.tokenizer.decode(whole[0, ids.shape[1] :])
    assert len(pieces) > 1, "everything came at once: nothing was streamed"


@torch.no_grad()
def test_a_cache_of_the_callers_own_is_taken_up_with_memory(model: MLMFModel, state: MemoryState) -> None:
    """A chat keeps the cache of the turns so far: reading on from it equals reading everything at once."""
    ids = torch.tensor([model.tokenizer(ASKED[0])["input_ids"]])
    memory, query = state.select([0]), model.query_keys([model.tokenizer("sister")["input_ids"]])
    whole = model(ids, state=memory, query=query).logits
    one: Any = model.generate(
        ids[:, :20], state=memory, query=query, max_new_tokens=1, return_dict_in_generate=True, do_sample=False
    )
    cache = one.past_key_values
    assert cache.get_seq_length() == 20
    argument = (
        "cache" if "cache" in inspect.signature(type(model.encoder.lm).forward).parameters else "past_key_values"
    )
    rest = model(
        ids[:, 20:], torch.ones_like(ids), memory, query=query, use_cache=True,
        position_ids=torch.arange(20, ids.shape[1])[None], **{argument: cache},
    )  # fmt: skip
    torch.testing.assert_close(rest.logits, whole[:, 20:], **CLOSE)
