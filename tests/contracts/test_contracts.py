"""Contracts of the whole model: random batches, precision, chance, adapters, and failures that others are known for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from mlmf.memory.state import MemoryState
from mlmf.model import IGNORED, MLMFModel

ASKED = ["Question: Where does the sister live?\nAnswer:", "What was red then?", "Anyone home here?"]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    """Gates open, adapters not zero; shared, not to be changed."""
    return make_model("llama", open_gates=True)


@pytest.fixture(scope="module")
def state(model: MLMFModel, remember: Callable[..., MemoryState], histories: list[Any]) -> MemoryState:
    return remember(model, histories)


# ---------------------------------------------------------------- any batch is its rows


@pytest.fixture(scope="module")
def alone(model: MLMFModel, remember: Any, histories: Any) -> Callable[[int, int, str], Any]:
    """The output for one row by itself, without padding; and its state."""
    known: dict[tuple[int, int], MemoryState] = {}

    def run(history: int, sessions: int, text: str) -> Any:
        if (history, sessions) not in known:
            told = histories[history][:sessions]
            known[history, sessions] = remember(model, [told]) if told else model.init_state()
        memory = known[history, sessions]
        return memory, model(torch.tensor([model.tokenizer(text)["input_ids"]]), state=memory)

    return run


ROW = st.tuples(st.integers(0, 2), st.integers(0, 3), st.text("abcd\n ?é", min_size=1, max_size=40))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(rows=st.lists(ROW, min_size=1, max_size=4), extra=st.integers(0, 9))
def test_a_batch_of_any_rows_and_any_padding_is_its_rows(
    model: MLMFModel, alone: Any, pad: Any, rows: list[tuple[int, int, str]], extra: int
) -> None:
    with torch.no_grad():
        single = [alone(*row) for row in rows]
        memory = MemoryState.cat([one for one, _ in single])
        ids, mask = pad(model.tokenizer, [text for _, _, text in rows], extra)
        together = model(ids, mask, state=memory)
    for row, (_, expected) in enumerate(single):
        n = expected.logits.shape[1]
        torch.testing.assert_close(together.logits[row, -n:], expected.logits[0], **CLOSE)
        assert together.recalls[row] == expected.recalls[0]


# ---------------------------------------------------------------- precision and chance


@pytest.mark.parametrize("base", ["llama", "gemma", "gpt_neox"])
@torch.no_grad()
def test_bfloat16_stays_as_close_to_float32_as_it_does_without_memory(
    base: str, make_model: Any, remember: Any, histories: Any, pad: Any
) -> None:
    outputs: dict[bool, dict[torch.dtype, Tensor]] = {True: {}, False: {}}
    for dtype in (torch.float32, torch.bfloat16):
        # every node is read, so that rounding cannot change which
        model = make_model(base, open_gates=True, dtype=dtype, recall_nodes=99)
        ids, mask = pad(model.tokenizer, ASKED[:2], 0)
        memory = remember(model, histories[:2])
        assert memory.values.dtype == dtype
        for with_memory in outputs:
            logits = model(ids, mask, state=memory if with_memory else None).logits
            outputs[with_memory][dtype] = logits[mask.bool()].float()
    errors = {}
    for with_memory, by_type in outputs.items():
        exact, rounded = by_type.values()
        errors[with_memory] = float((rounded - exact).std() / exact.std())
    assert errors[True] < max(2 * errors[False], 0.02), errors


def test_chance_decides_nothing_and_is_not_disturbed(make_model: Any, remember: Any, histories: Any, pad: Any) -> None:
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model = make_model("llama", open_gates=True)
        memory = remember(model, histories)
        with torch.no_grad():
            outputs.append(model(*pad(model.tokenizer, ASKED, 0), state=memory).logits)
        model.answer("Where?", memory.select([0]))
        assert torch.equal(torch.get_rng_state(), before), "building or asking moved the global random state"
    assert torch.equal(*outputs)
    other = make_model("llama", seed=7)
    assert not torch.equal(other.memory.episodic.queries, model.memory.episodic.queries)


# ---------------------------------------------------------------- adapters


@torch.no_grad()
def test_merging_the_adapter_and_taking_it_out_again_keep_outputs_and_memories(
    make_model: Any, remember: Any, histories: Any, pad: Any
) -> None:
    model = make_model("llama", open_gates=True)
    ids, mask = pad(model.tokenizer, ASKED, 0)
    memory = remember(model, histories)
    expected = model(ids, mask, state=memory).logits
    weights = {name: weight.clone() for name, weight in model.lm.named_parameters()}

    model.unmerge_adapters()
    torch.testing.assert_close(model(ids, mask, state=memory).logits, expected, **CLOSE)
    model.merge_adapters()
    assert torch.equal(model(ids, mask, state=memory).logits, expected)
    # sessions are read by the base alone, merged or not, and the base is what it was
    assert torch.equal(remember(model, histories).values, memory.values)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.lm.named_parameters())


# ---------------------------------------------------------------- what others are known to fail at


def test_tied_embeddings_train_beside_memory_and_save_as_safetensors(
    make_model: Any, make_base: Any, remember: Any, histories: Any, pad: Any, tmp_path: Path
) -> None:
    model = make_model("llama-tied", open_gates=True)
    ids, mask = pad(model.tokenizer, ASKED, 0)
    memory = remember(model, histories)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.1)
    model.train()
    loss = model(ids, mask, state=memory, labels=torch.where(mask.bool(), ids, IGNORED)).loss
    loss.backward()
    optimiser.step()
    lm = model.lm.get_base_model()
    assert lm.lm_head.weight is lm.get_input_embeddings().weight
    assert torch.equal(lm.lm_head.weight, make_base("llama-tied").lm_head.weight)
    model.save_pretrained(tmp_path / "out")
    files = sorted(path.name for path in (tmp_path / "out").rglob("*.safetensors"))
    assert files == ["adapter_model.safetensors", "memory.safetensors"]
    saved = {name for path in (tmp_path / "out").rglob("*.safetensors") for name in load_file(path)}
    assert not [name for name in saved if "embed" in name or "lm_head" in name], "the base model was saved along"


@torch.no_grad()
def test_layers_that_are_called_by_keyword_only_read_the_same(
    make_model: Any, state: MemoryState, model: MLMFModel, remember: Any, histories: Any, pad: Any
) -> None:
    """Wrappers hand hidden states over by position or by name, and that changes between releases."""
    named = make_model("llama", open_gates=True)
    plain = type(named.encoder.layers[0])

    class Named(plain):  # type: ignore[misc, valid-type]
        def __call__(self, hidden_states: Tensor, **kwargs: Any) -> Any:
            return super().__call__(hidden_states=hidden_states, **kwargs)

    for layer in named.encoder.layers:
        layer.__class__ = Named
    ids, mask = pad(model.tokenizer, ASKED, 0)
    memory = remember(named, histories)
    assert torch.equal(memory.values, state.values)
    assert torch.equal(named(ids, mask, state=memory).logits, model(ids, mask, state=state).logits)


def test_no_gpu_is_asked_for(make_model: Any, histories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, where asking for it is right")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was moved to a GPU")

    monkeypatch.setattr(Tensor, "cuda", refuse)
    monkeypatch.setattr(nn.Module, "cuda", refuse)
    model = make_model("gpt2")
    memory = model.remember([histories[0][0]], model.init_state())
    assert model.answer("Which cat?", memory).recalled
