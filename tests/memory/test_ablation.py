"""Each switch of the config really removes its part: no slot, no weight, no influence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.gate import entropy
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

IDS = torch.tensor([tiny_tokenizer()("Anna is?").input_ids])  # names one of two, which is what marks are about
PARTS = ("working", "episodic", "semantic")
TEXTS = ("The cat is called Miso", "My sister lives in Oslo", "We sold the old boat")
SESSIONS = [
    Session(i, None, (Turn(f"t{i}", "Anna", text), Turn(f"u{i}", "Ben", "ok"))) for i, text in enumerate(TEXTS)
]


def build(**settings: object) -> MLMFModel:
    config = MLMFConfig(**{"key_dim": 16, "recall_nodes": 2, "lora": LoraSettings(r=0), **settings})  # type: ignore[arg-type]
    model = MLMFModel(tiny_model("llama"), tiny_tokenizer(), config).eval()
    with torch.no_grad():
        for fusion in model.memory.fusions:
            fusion.g.fill_(0.5)
        model.memory.find_weight.fill_(0.3)
        if model.memory.whose is not None:
            nn.init.normal_(model.memory.whose, generator=torch.Generator().manual_seed(3))
    return model


@torch.no_grad()
def remembered(model: MLMFModel, sessions: Sequence[Session] = SESSIONS) -> MemoryState:
    state = model.init_state()
    for session in sessions:
        state = model.remember([session], state)
    return state


def shake(model: MLMFModel, prefixes: Sequence[str]) -> int:
    """Other weights for every parameter under a name; returns how many there were."""
    found = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(tuple(f"memory.{p}" for p in prefixes)):
                parameter.add_(torch.randn_like(parameter))
                found += 1
    return found


def slots(state: MemoryState) -> dict[str, Tensor]:
    return {"working": state.working_mask, "episodic": state.episodic_mask, "semantic": state.semantic_mask}


@pytest.mark.parametrize("off", PARTS)
@torch.no_grad()
def test_a_layer_that_is_off_has_no_slots_and_no_share(off: str) -> None:
    model = build(**{off: False})
    state = remembered(model)
    assert {name: mask.any().item() for name, mask in slots(state).items()} == {name: name != off for name in PARTS}
    assert slots(state)[off].numel() == 0
    gates = model(IDS, state=state).gates[0]
    assert [float(share) > 0 for share in gates] == [name != off for name in PARTS]
    torch.testing.assert_close(gates.sum(), torch.tensor(1.0))


@pytest.mark.parametrize("off", PARTS)
@torch.no_grad()
def test_without_a_layer_the_read_is_that_of_a_memory_that_never_held_it(off: str) -> None:
    """The full model with the layer's slots masked by hand, salience apart: what is left is read alike."""
    full, without = build(), build(**{off: False})
    without.memory.load_state_dict(
        {k: v for k, v in full.memory.state_dict().items() if k in without.memory.state_dict()}
    )
    state = remembered(full)
    names = {"working": "working_mask", "episodic": "episodic_mask", "semantic": "owner"}
    mask = getattr(state, names[off])
    emptied = replace(state, **{names[off]: torch.full_like(mask, -1 if off == "semantic" else 0)})
    if off == "semantic":
        emptied = replace(emptied, nodes=((),))
    expected = full(IDS, state=emptied)
    found = without(IDS, state=remembered(without))
    torch.testing.assert_close(found.logits, expected.logits)
    assert not torch.allclose(found.logits, full(IDS, state=state).logits, atol=1e-3)


@pytest.mark.parametrize(
    ("off", "prefixes", "left"),
    [
        ("working", [], 0),
        ("episodic", ["episodic."], 0),
        ("semantic", ["semantic.", "scorer.", "find_weight", "key_projection.token"], 15),
        ("nothing", ["scorer.doubt", "nothing"], 0),
        ("whose", ["whose"], 0),
        ("gating", [f"fusions.{i}.gate" for i in range(9)], 0),
    ],
)
@torch.no_grad()
def test_nothing_depends_on_weights_of_what_is_off(off: str, prefixes: list[str], left: int) -> None:
    """What weights there still are of it (those that find) are frozen and change no output."""
    model = build(**{off: False})
    before = model(IDS, state=remembered(model)).logits
    named = [(n, p) for n, p in model.named_parameters() if n.startswith("memory.")]
    # the norms are the host's, frozen in every model
    frozen = [n for n, p in named if not p.requires_grad and ".norm." not in n]
    assert all(
        name.startswith(("memory.scorer.", "memory.find_weight", "memory.key_projection.token")) for name in frozen
    )
    assert shake(model, prefixes) == left == len(frozen)
    assert torch.equal(model(IDS, state=remembered(model)).logits, before)
    # while the same weights of a full model do matter
    full = build()
    if prefixes:
        before = full(IDS, state=remembered(full)).logits
        assert shake(full, prefixes) > 0
        assert not torch.equal(full(IDS, state=remembered(full)).logits, before)


@torch.no_grad()
def test_the_slot_of_having_found_nothing_is_read_only_beside_nodes_and_is_no_recalled_turn() -> None:
    full, without = build(), build(nothing=False)
    without.memory.load_state_dict(full.memory.state_dict(), strict=False)
    state = remembered(full)
    query = full.query_keys(IDS.tolist())
    found, expected = full.read(query, state), without.read(query, state)
    assert found.recalls == expected.recalls
    assert found.bank.sizes[2] == expected.bank.sizes[2] + 1
    slot = full.memory.codec.decode(full.memory.nothing)
    torch.testing.assert_close(found.bank.states[:, :, -1], slot[None], rtol=1e-5, atol=1e-5)
    both = MemoryState.cat([state, full.init_state()])
    shared = full.read(full.query_keys(IDS.tolist() * 2), both)
    assert shared.bank.mask[0, -1] and not shared.bank.mask[1].any() and shared.recalls[1].chosen == ()


@torch.no_grad()
def test_without_gating_layers_share_equally() -> None:
    model = build(gating=False)
    assert model(IDS, state=remembered(model)).gamma.unique().tolist() == pytest.approx([1 / 3])


@torch.no_grad()
def test_without_the_entropy_bound_the_gate_is_left_as_it_is() -> None:
    sharp, free = build(epsilon=0.1, beta=1.0), build(epsilon=0.1, beta=1.0, entropy=False)
    assert (entropy(sharp(IDS, state=remembered(sharp)).gamma) <= 0.1 + 1e-3).all()
    gamma = free(IDS, state=remembered(free)).gamma
    assert (entropy(gamma) > 0.5).all()
    never = build(epsilon=math.log(3), beta=1.0)
    assert torch.equal(gamma, never(IDS, state=remembered(never)).gamma)


def test_weights_of_an_ablated_model_come_back() -> None:
    for off in (*PARTS, "versions", "nothing", "whose", "gating"):
        model = build(**{off: False})
        again = build(**{off: False})
        shake(model, [""])
        again.memory.load_state_dict(model.memory.state_dict())
        with torch.no_grad():
            assert torch.equal(again(IDS, state=remembered(again)).logits, model(IDS, state=remembered(model)).logits)


def test_a_memory_of_nothing_and_a_capacity_of_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="keep at least one"):
        MLMFConfig(working=False, episodic=False, semantic=False)
    with pytest.raises(UserError, match="c_s must be at least 2"):
        MLMFConfig(c_s=1)
