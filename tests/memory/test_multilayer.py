from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mlmf.config.model import MLMFConfig
from mlmf.memory.features import SessionFeatures, session_pieces
from mlmf.memory.host import decoder_layers, host_attention
from mlmf.memory.multilayer import MultiLayerMemory
from mlmf.memory.state import MemoryState
from mlmf.tiny import tiny_model
from mlmf.types import Session

Makers = tuple[Callable[..., Session], Callable[..., SessionFeatures], Callable[..., MultiLayerMemory]]


@pytest.fixture
def makers(
    make_session: Callable[..., Session],
    make_features: Callable[..., SessionFeatures],
    make_memory: Callable[..., MultiLayerMemory],
) -> Makers:
    return make_session, make_features, make_memory


def history(makers: Makers, count: int, seed: int = 0) -> list[tuple[Session, SessionFeatures]]:
    make_session, make_features, _ = makers
    sessions = [make_session(i, f"turn {seed} of {i}", f"reply {i}") for i in range(count)]
    return [(session, make_features(session, 100 * seed + session.index)) for session in sessions]


def remember(memory: MultiLayerMemory, state: MemoryState, past: list[tuple[Session, SessionFeatures]]) -> MemoryState:
    for session, features in past:
        state = memory.write([session], [features], state)
    return state


@torch.no_grad()
def test_each_layer_holds_what_its_equation_says(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    memory = makers[2](k=3, c_w=5, c_e=8)
    past = history(makers, 3)
    state = remember(memory, empty(memory), past)
    last = past[-1][1]
    assert torch.equal(state.working[0, :3], last.codes[-3:])
    assert state.working_mask[0].tolist() == [True] * 3 + [False] * 2
    assert state.episodic_mask[0].tolist() == [True] * 3 + [False] * 5
    assert torch.equal(state.values[0], torch.cat([features.codes for _, features in past]))
    assert torch.equal(state.tokens[0], torch.cat([features.tokens for _, features in past]))
    assert state.owner[0].tolist() == [3 * i + p for i in range(3) for p in [0] * 3 + [1] * 4 + [2] * 4]
    assert [node.turn_id for node in state.nodes[0]] == ["", "D0:0", "D0:1", "", "D1:0", "D1:1", "", "D2:0", "D2:1"]
    assert state.sessions == (3,) and state.latest == (2,)
    torch.testing.assert_close(state.embedding.norm(dim=-1), torch.ones(1, 9))


@torch.no_grad()
def test_size_is_flat_once_the_layers_are_full(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    memory = makers[2](c_s=7, node_tokens=4, k=4, c_w=4, c_e=8)
    state, sizes = empty(memory), []
    for session, features in history(makers, 25):
        state = memory.write([session], [features], state)
        assert len(state.nodes[0]) <= 7 and state.values.shape[1] <= 7 * 4
        sizes.append(state.n_bytes)
    assert state.sessions == (25,)
    assert len(set(sizes[3:])) == 1
    assert {node.session for node in state.nodes[0]} == {23, 24}  # the newest, at equal salience and degree


@torch.no_grad()
def test_rows_of_a_batch_are_written_apart(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    memory = makers[2](c_e=4)
    long, short = history(makers, 4, seed=1), history(makers, 2, seed=2)
    state = empty(memory, 2)
    for t in range(4):
        session, features = short[t - 1] if t in (1, 2) else (None, None)
        state = memory.write([long[t][0], session], [long[t][1], features], state)
    apart = [remember(memory, empty(memory), past) for past in (long, short)]
    expected = MemoryState.cat(apart)
    for name, tensor in expected._tensors().items():
        # products over other numbers of rows may round otherwise
        torch.testing.assert_close(getattr(state, name), tensor, rtol=1e-5, atol=1e-6, msg=name)
    assert state.nodes == expected.nodes and state.sessions == (4, 2)


@torch.no_grad()
def test_none_leaves_a_conversation_as_it_is(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    memory = makers[2]()
    state = remember(memory, empty(memory), history(makers, 2))
    after = memory.write([None], [None], state)
    for name, tensor in state._tensors().items():
        assert torch.equal(tensor, getattr(after, name)), name
    assert after.nodes == state.nodes and after.sessions == state.sessions


@torch.no_grad()
def test_a_repeated_turn_supersedes_the_older(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    make_session, make_features, make_memory = makers
    memory = make_memory()
    first = make_session(0, "I live in Oslo", "ok")
    features = make_features(first, 1)
    again = make_session(1, "I live in Oslo", "really")
    other = make_features(again, 2)
    other.keys[3:7] = features.keys[3:7]  # the same words again
    state = memory.write([first], [features], empty(memory))
    state = memory.write([again], [other], state)
    assert [node.superseded_by for node in state.nodes[0]] == [None, (1, 0), None, None, None, None]


def test_gradient_flows_through_later_sessions_to_the_first(makers: Makers, empty: Callable[..., MemoryState]) -> None:
    memory = makers[2](alpha_mode="scalar", c_e=4)
    past = history(makers, 3)
    first = memory.write([past[0][0]], [past[0][1]], empty(memory))
    first.episodic.retain_grad()
    last = remember(memory, first, past[1:])
    last.episodic.sum().backward()
    torch.testing.assert_close(first.episodic.grad, torch.full_like(first.episodic, 0.9**2))


def test_session_pieces_are_a_date_line_and_a_line_per_turn(make_session: Callable[..., Session]) -> None:
    assert session_pieces(make_session(7, "hello", "you too")) == ["[8 May 2023]\n", "Anna: hello\n", "Ben: you too\n"]


@pytest.mark.parametrize("slots", ["model", "int8"])
def test_rows_held_apart_and_joined_once_are_the_batch_written_step_by_step(
    makers: Makers, empty: Callable[..., MemoryState], slots: str
) -> None:
    memory = makers[2](c_e=4, c_s=9, slots=slots)
    pasts = [history(makers, 4, seed=1), history(makers, 2, seed=2), []]
    joined = empty(memory, 3)
    rows = joined.split()
    for t in range(4):
        now = [past[t] if t < len(past) else (None, None) for past in pasts]
        sessions, features = [s for s, _ in now], [f for _, f in now]
        joined = memory.write(sessions, features, joined)
        rows = memory.write_rows(sessions, features, rows)
    apart = MemoryState.cat(rows)
    weights = [p for p in memory.parameters() if p.requires_grad]

    def gradients(state: MemoryState) -> list[torch.Tensor | None]:
        loss = state.episodic.square().sum() + state.embedding.sum() + state.salience.sum()
        return list(torch.autograd.grad(loss, weights, allow_unused=True))

    for name, tensor in joined._tensors().items():
        assert torch.equal(tensor, getattr(apart, name)), name
    assert apart.nodes == joined.nodes and apart.sessions == joined.sessions == (4, 2, 0)
    found, expected = gradients(apart), gradients(joined)
    assert any(grad is not None and grad.any() for grad in expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


@torch.no_grad()
@pytest.mark.parametrize(
    ("slots", "per_slot", "limit"), [("model", 2 * (512 + 128), 16e6), ("int8", 512 + 128, 8.4e6)]
)
def test_a_full_memory_at_the_default_capacities_is_bounded_to_the_byte(
    make_session: Callable[..., Session], slots: str, per_slot: int, limit: float
) -> None:
    lm = tiny_model("llama", width=128)
    hosts = [host_attention(layer, lm) for layer in decoder_layers(lm)]
    memory = MultiLayerMemory(MLMFConfig(slots=slots), hosts, 128, 9).to(torch.bfloat16).eval()
    memory.codec.float()
    memory.key_projection.float()
    assert (memory.codec.code_width, memory.key_dim) == (512, 128)
    state = memory.init_state(1, "full", torch.device("cpu"), torch.bfloat16)
    # 20 tokens a turn and 8 a date line: 51 turns a session fill 1,028 slots and 52 nodes
    pieces = torch.tensor([0] * 8 + [i + 1 for i in range(51) for _ in range(20)])
    sizes = []
    for index in range(14):
        features = SessionFeatures(
            torch.randn(1028, 512), torch.randn(1028, 128), torch.randint(3, 60, (1028,)), pieces
        )
        state = memory.write([make_session(index, *["good morning"] * 51)], [features], state)
        sizes.append(state.n_bytes)
    c = memory.config
    assert len(state.nodes[0]) <= c.c_s and c.c_m - 20 < state.owner.shape[1] <= c.c_m
    fixed = (c.c_w + c.c_e) * (2 * 512 + 1)
    node = 2 * (128 + 128 + 1)
    # flat but for what the last turn and date line that fit take
    assert max(sizes[-2:]) - min(sizes[-2:]) <= 28 * (per_slot + 16) + 2 * node and sizes[-1] > sizes[5]
    assert state.n_bytes == fixed + state.owner.shape[1] * (per_slot + 16) + len(state.nodes[0]) * node
    assert fixed + c.c_m * (per_slot + 16) + c.c_s * node <= limit
