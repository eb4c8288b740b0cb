from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mlmf.errors import UserError
from mlmf.memory.state import MemoryState, Node, pad_to

LONG, SHORT = [(0, -1, 1), (0, 0, 3), (1, -1, 1), (1, 0, 4)], [(0, -1, 2), (0, 0, 2)]


def assert_equal(one: MemoryState, other: MemoryState) -> None:
    tensors = one._tensors()
    assert tensors.keys() == other._tensors().keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, getattr(other, name)) and tensor.dtype == getattr(other, name).dtype, name
    for name in ("nodes", "sessions", "latest", "fingerprint"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_save_and_load_give_the_same_bytes(
    toy_state: Callable[..., MemoryState], tmp_path: Path, dtype: torch.dtype
) -> None:
    state = toy_state([LONG, SHORT])
    state = state._map(lambda t: t.to(dtype) if t.is_floating_point() else t)
    odd = Node(0, 0, "D0:0", 'Zoë said: "naïve" \n', ("zoë", "paris"), (1, 0), "Zoë", "2023-05-08T13:56:00")
    state = replace(state, nodes=((odd, *state.nodes[0][1:]), state.nodes[1]))
    file = tmp_path / "memory.safetensors"
    state.save(file)
    assert_equal(MemoryState.load(file), state)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.safetensors"]


def test_a_state_that_carries_a_gradient_can_be_saved(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    state = toy_state([SHORT])
    state = replace(state, episodic=state.episodic.requires_grad_() * 2)
    state.save(tmp_path / "memory.safetensors")
    assert_equal(MemoryState.load(tmp_path / "memory.safetensors"), state.detach())


def test_load_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no memory state at .*nothing\.safetensors"):
        MemoryState.load(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"\x80\x02}q\x00."])
def test_load_of_what_is_no_safetensors_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wrong.safetensors"
    file.write_bytes(content)
    with pytest.raises(UserError, match="is not a safetensors file"):
        MemoryState.load(file)


def test_load_of_a_truncated_state(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    file = tmp_path / "memory.safetensors"
    toy_state([LONG]).save(file)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"memory\.safetensors"):
        MemoryState.load(file)


@pytest.mark.parametrize("meta", [None, {"format": "pt"}, {"format": "mlmf-state-2"}])
def test_load_of_other_tensors(tmp_path: Path, meta: dict[str, str] | None) -> None:
    file = tmp_path / "weights.safetensors"
    save_file({"working": torch.zeros(2)}, file, meta)
    with pytest.raises(UserError, match=r"is not a memory state of this version.*Remember the sessions again"):
        MemoryState.load(file)


def test_load_of_a_state_with_missing_tensors(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    file = tmp_path / "half.safetensors"
    meta = {
        "format": "mlmf-state-3",
        "latest": "[0]",
        "fingerprint": "toy",
        "sessions": "[1]",
        "nodes": json.dumps([[]]),
    }
    save_file({"working": torch.zeros(2)}, file, meta)
    with pytest.raises(UserError, match=r"half\.safetensors"):
        MemoryState.load(file)


@pytest.mark.parametrize(
    ("part", "value"),
    [("nodes", "[[]]"), ("nodes", "[[{"), ("nodes", '[[{"session": 0}]]'), ("latest", "[]"), ("sessions", None)],
)
def test_load_of_a_damaged_state(
    toy_state: Callable[..., MemoryState], tmp_path: Path, part: str, value: str | None
) -> None:
    file = tmp_path / "memory.safetensors"
    toy_state([LONG]).save(file)
    with safe_open(file, framework="pt") as opened:
        meta = {**opened.metadata(), part: value}
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    save_file(tensors, file, {name: text for name, text in meta.items() if text is not None})
    with pytest.raises(UserError, match=r"memory\.safetensors is damaged: .*Remember the sessions again"):
        MemoryState.load(file)


def test_load_of_tensors_of_another_size(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    state = toy_state([LONG])
    replace(state, keys=state.keys[:, 1:]).save(tmp_path / "memory.safetensors")
    with pytest.raises(UserError, match=r"its tensors are not those of its turns"):
        MemoryState.load(tmp_path / "memory.safetensors")


def test_cat_then_select_gives_back_each_conversation(toy_state: Callable[..., MemoryState]) -> None:
    one, two = toy_state([LONG], seed=1), toy_state([SHORT], seed=2)
    both = MemoryState.cat([one, two])
    assert both.batch_size == 2 and both.sessions == (2, 1) and both.nodes == one.nodes + two.nodes
    assert both.latest == (1, 0)
    assert_equal(both.select([0]), one)
    second = both.select([1])
    m, n = 4, 2
    for name, tensor in two._tensors().items():
        cut = getattr(second, name)
        cut = cut[:, :m] if name in ("values", "keys", "tokens", "owner") else cut
        cut = cut[:, :n] if name in ("embedding", "pooled", "salience") else cut
        assert torch.equal(cut, tensor), name
    assert second.semantic_mask.sum() == m
    assert (second.owner[0, m:] == -1).all() and not second.values[0, m:].any()


def test_cat_and_split_are_inverse(toy_state: Callable[..., MemoryState]) -> None:
    parts = [toy_state([row], seed=i) for i, row in enumerate((LONG, SHORT, [(4, -1, 1), (4, 0, 5)]))]
    both = MemoryState.cat(parts)
    for part, again in zip(parts, both.split(), strict=True):
        assert_equal(again, part)
    assert_equal(MemoryState.cat(both.split()), both)


def test_split_of_an_empty_state(make_memory: Callable[..., object], empty: Callable[..., MemoryState]) -> None:
    state = empty(make_memory(), 3)
    assert len(state.split()) == 3
    assert_equal(MemoryState.cat(state.split()), state)


def test_select_orders_and_repeats(toy_state: Callable[..., MemoryState]) -> None:
    both = toy_state([LONG, SHORT])
    chosen = both.select([1, 0, 1])
    assert chosen.sessions == (1, 2, 1)
    assert torch.equal(chosen.keys, both.keys[[1, 0, 1]])
    assert chosen.nodes == (both.nodes[1], both.nodes[0], both.nodes[1])


def test_states_of_different_models_cannot_be_joined(toy_state: Callable[..., MemoryState]) -> None:
    one = toy_state([SHORT])
    with pytest.raises(UserError, match="'toy' and 'other'"):
        MemoryState.cat([one, replace(one, fingerprint="other")])


def in_eight_bits(state: MemoryState) -> MemoryState:
    return replace(state, values=(10 * state.values).to(torch.int8), keys=(100 * state.keys).to(torch.int8))


def test_slots_of_eight_bits_are_saved_split_and_moved_like_others(
    toy_state: Callable[..., MemoryState], tmp_path: Path
) -> None:
    state = in_eight_bits(toy_state([LONG, SHORT]))
    state.save(tmp_path / "memory.safetensors")
    assert_equal(MemoryState.load(tmp_path / "memory.safetensors"), state)
    assert_equal(MemoryState.cat(state.split()), state)
    assert_equal(state.select([0, 1]).to("cpu"), state)
    whole = toy_state([LONG, SHORT])
    assert whole.n_bytes - state.n_bytes == 3 * (whole.values.numel() + whole.keys.numel())


def test_slots_of_different_types_cannot_be_joined(toy_state: Callable[..., MemoryState]) -> None:
    one = toy_state([SHORT])
    with pytest.raises(UserError, match=r"slots of torch\.float32 and torch\.int8 cannot be joined"):
        MemoryState.cat([one, in_eight_bits(one)])


def test_detach_cuts_the_gradient(toy_state: Callable[..., MemoryState]) -> None:
    state = toy_state([SHORT])
    state = replace(state, episodic=state.episodic.requires_grad_() * 2)
    assert state.episodic.requires_grad and not state.detach().episodic.requires_grad
    assert_equal(state.detach(), state)


def test_n_bytes_counts_every_tensor(toy_state: Callable[..., MemoryState]) -> None:
    state = toy_state([SHORT])
    floats = 3 * 6 + 2 * 6 + 4 * 6 + 4 * 8 + 2 * 8 + 2 * 8 + 2
    assert state.n_bytes == 4 * floats + 8 * (4 + 4) + (3 + 2)


def test_pad_to_grows_one_dimension_at_its_end() -> None:
    tensor = torch.ones(2, 3, 4)
    grown = pad_to(tensor, 1, 5, value=-1)
    assert grown.shape == (2, 5, 4)
    assert torch.equal(grown[:, :3], tensor) and (grown[:, 3:] == -1).all()
    assert pad_to(tensor, 1, 3) is tensor


def test_save_makes_parent_folders_and_refuses_a_folder(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    state = toy_state([SHORT])
    file = tmp_path / "new" / "deep" / "memory.safetensors"
    state.save(str(file))
    assert_equal(MemoryState.load(file), state)
    with pytest.raises(UserError, match=r"deep: is a folder; give the file to write"):
        state.save(file.parent)
    with pytest.raises(UserError, match=r"memory\.safetensors is not a folder"):
        state.save(file / "below.safetensors")
    assert [path.name for path in file.parent.iterdir()] == ["memory.safetensors"]
