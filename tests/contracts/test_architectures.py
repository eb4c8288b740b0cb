"""Contracts 1 and 2 on every family of decoders: identity to the bit, and parity of every way to run the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mlmf.config.model import MLMFConfig
from mlmf.memory.state import MemoryState
from mlmf.model import IGNORED, MLMFModel
from mlmf.tiny import tiny_tokenizer

BASES = [
    "llama", "llama-tied", "llama-one-key-head", "qwen2", "qwen3", "mistral-window", "gemma", "gpt2", "gpt_neox",
]  # fmt: skip
ASKED = ["Question: Where does the sister live?\nAnswer:", "What was red then?", "Anyone home here?"]
NEW = 8
WINDOW = 12
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module", params=BASES)
def opened(request: pytest.FixtureRequest, make_model: Callable[..., MLMFModel]) -> MLMFModel:
    """Gates open, adapters not zero; shared, not to be changed."""
    return make_model(request.param, open_gates=True)


@pytest.fixture(scope="module")
def state(opened: MLMFModel, remember: Callable[..., MemoryState], histories: list[Any]) -> MemoryState:
    return remember(opened, histories)


@pytest.mark.parametrize("base", BASES)
@torch.no_grad()
def test_default_settings_leave_the_base_model_as_it_is_to_the_bit(
    base: str, make_base: Any, remember: Any, histories: Any, pad: Any
) -> None:
    ids, mask = pad(tiny_tokenizer(), ASKED, 3)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = make_base(base)(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    model = MLMFModel(make_base(base), tiny_tokenizer(), MLMFConfig()).eval()
    for memory in (None, model.init_state(3), remember(model, histories)):
        assert torch.equal(model(ids, mask, state=memory).logits, expected)
    labels = torch.where(mask.bool(), ids, IGNORED)
    assert model(ids, mask, state=memory, labels=labels).loss.isfinite()
    assert len(model.answer("Where does the sister live?", memory.select([0])).recalled) == 7


@torch.no_grad()
def test_the_sliding_window_is_shorter_than_what_is_asked_and_remembered(
    make_base: Any, make_model: Any, remember: Any, histories: Any, pad: Any
) -> None:
    ids, _ = pad(tiny_tokenizer(), ASKED[:1], 0)
    slides, sees_all = make_base("mistral-window"), make_base("mistral-window")
    sees_all.config.sliding_window = None
    assert torch.allclose(slides(ids).logits[:, :WINDOW], sees_all(ids).logits[:, :WINDOW], atol=1e-5)
    assert not torch.allclose(slides(ids).logits[:, -1], sees_all(ids).logits[:, -1], atol=1e-2)
    assert remember(make_model("mistral-window"), histories).owner.shape[1] > WINDOW


@torch.no_grad()
def test_cached_uncached_and_teacher_forced_logits_agree(opened: MLMFModel, state: MemoryState, pad: Any) -> None:
    ids, mask = pad(opened.tokenizer, ASKED, 0)
    query = opened.query_keys([opened.tokenizer(text)["input_ids"] for text in ("sister live", "red", "home")])
    settings: dict[str, Any] = {
        "state": state, "query": query, "max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False,
        "output_logits": True, "return_dict_in_generate": True,
    }  # fmt: skip
    cached: Any = opened.generate(ids, mask, **settings)
    uncached: Any = opened.generate(ids, mask, use_cache=False, **settings)
    assert torch.equal(cached.sequences, uncached.sequences)
    whole = torch.cat([mask, torch.ones(len(ids), NEW, dtype=mask.dtype)], 1)
    forced = opened(cached.sequences, whole, state=state, query=query).logits[:, ids.shape[1] - 1 : -1]
    for one in (cached, uncached):
        torch.testing.assert_close(torch.stack(one.logits, 1), forced, **CLOSE)
    plain: Any = opened.generate(ids, mask, **{**settings, "state": None, "query": None})
    change = (torch.stack(plain.logits, 1)[:, 0] - forced[:, 0]).abs().amax(-1)
    assert (change[:2] > 0.05).all() and change[2] < 1e-4, "two rows have memories, the third has none"


@torch.no_grad()
def test_a_batch_is_its_rows_and_padding_is_neutral(
    opened: MLMFModel, state: MemoryState, remember: Any, histories: Any, pad: Any
) -> None:
    together = opened(*pad(opened.tokenizer, ASKED, 16), state=state)
    for row, text in enumerate(ASKED):
        ids = torch.tensor([opened.tokenizer(text)["input_ids"]])
        for memory in (state.select([row]), remember(opened, [histories[row]]) if histories[row] else None):
            alone = opened(ids, state=memory)
            torch.testing.assert_close(together.logits[row, -ids.shape[1] :], alone.logits[0], **CLOSE)
            if histories[row]:
                torch.testing.assert_close(together.gates[row], alone.gates[0], **CLOSE)
                assert together.recalls[row] == alone.recalls[0]


@torch.no_grad()
def test_gates_are_shares_that_move_from_token_to_token(opened: MLMFModel, state: MemoryState, pad: Any) -> None:
    ids, mask = pad(opened.tokenizer, ASKED[:2], 0)
    gamma = opened(ids, mask, state=state.select([0, 1])).gamma  # (B, L, T, 3)
    torch.testing.assert_close(gamma.sum(-1), torch.ones(gamma.shape[:3]))
    kept = gamma[0][:, mask[0].bool()]
    assert kept.std(1).max() > 1e-3, "every token has the same shares: the gate does not look at the token"


def test_every_fusion_layer_learns(opened: MLMFModel, state: MemoryState, pad: Any) -> None:
    ids, mask = pad(opened.tokenizer, ASKED, 0)
    gates = [fusion.g for fusion in opened.memory.fusions]
    loss = opened(ids, mask, state=state, labels=torch.where(mask.bool(), ids, IGNORED)).loss
    gradients: tuple[Tensor, ...] = torch.autograd.grad(loss, gates)
    assert all(gradient.abs() > 1e-5 for gradient in gradients)
