from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.graph import edges
from mlmf.memory.semantic import SemanticMemory, SemanticRow, session_nodes
from mlmf.memory.state import Node
from mlmf.types import Session, Turn

WIDTH, KEY = 6, 5


def make(c_s: int = 100, node_tokens: int = 64, tau_s: float = 0.97) -> SemanticMemory:
    torch.manual_seed(0)
    return SemanticMemory(WIDTH, KEY, c_s, node_tokens, tau_s)


def empty_row() -> SemanticRow:
    return SemanticRow(
        torch.zeros(2, 0, WIDTH), torch.zeros(0, KEY), torch.zeros(0).long(), torch.zeros(0).long(),
        torch.zeros(0, KEY), (),
    )  # fmt: skip


def piece(pieces: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n = len(pieces)
    keys = F.normalize(torch.randn(n, KEY, generator=generator), dim=-1)
    return torch.randn(2, n, WIDTH, generator=generator), keys, torch.arange(n), torch.tensor(pieces)


def some_nodes(session: int, turns: int) -> tuple[Node, ...]:
    header = Node(session, -1, "", "[date]")
    return (header, *(Node(session, i, f"D{session}:{i}", "line") for i in range(turns)))


def test_session_nodes_follow_the_pieces() -> None:
    session = Session(3, None, (Turn("t", "Anna", "I met Sarah in Paris."), Turn("u", "Ben", "yes", caption="a dog")))
    header, first, second = session_nodes(session)
    assert header == Node(3, -1, "", "[undated]") and header.is_session
    assert first == Node(3, 0, "t", "[undated] Anna: I met Sarah in Paris.", ("sarah", "paris"))
    assert second.line == "[undated] Ben: yes [shares a picture: a dog]"


def test_append_keeps_states_and_says_who_owns_them() -> None:
    memory = make()
    states, keys, tokens, pieces = piece([0, 0, 1, 1, 1, 2])
    row = memory.append(empty_row(), states, keys, tokens, pieces, some_nodes(0, 2))
    assert torch.equal(row.values, states) and torch.equal(row.keys, keys) and torch.equal(row.tokens, tokens)
    assert row.owner.tolist() == [0, 0, 1, 1, 1, 2]
    sums = np.stack([keys.numpy()[[0, 1]].sum(0), keys.numpy()[2:5].sum(0), keys.numpy()[5]])
    np.testing.assert_allclose(row.pooled.numpy(), sums / np.linalg.norm(sums, axis=1, keepdims=True), rtol=1e-5)
    more = memory.append(row, *piece([0, 1, 1], seed=1), some_nodes(1, 1))
    assert more.owner.tolist() == [0, 0, 1, 1, 1, 2, 3, 4, 4]
    assert torch.equal(more.values[:, :6], states)
    assert [(n.session, n.turn) for n in more.nodes] == [(0, -1), (0, 0), (0, 1), (1, -1), (1, 0)]


def test_a_long_turn_keeps_its_first_tokens() -> None:
    states, keys, tokens, pieces = piece([0, 1, 1, 1, 1, 2, 2])
    row = make(node_tokens=2).append(empty_row(), states, keys, tokens, pieces, some_nodes(0, 2))
    assert row.owner.tolist() == [0, 1, 1, 2, 2]
    assert row.tokens.tolist() == [0, 1, 2, 5, 6]
    assert torch.equal(row.values, states[:, [0, 1, 2, 5, 6]])


def test_a_turn_without_tokens_still_has_a_node() -> None:
    row = make().append(empty_row(), *piece([0, 2, 2]), some_nodes(0, 2))
    assert len(row.nodes) == len(row.pooled) == 3
    assert not row.pooled[1].any() and torch.isfinite(row.pooled).all()


@pytest.mark.parametrize(("cosine", "superseded"), [(0.99, True), (0.95, False)])
def test_resolve_marks_the_older_near_duplicate(cosine: float, superseded: bool) -> None:
    memory = make(tau_s=0.97)
    old = torch.eye(KEY)[[0, 1, 2]]
    row = SemanticRow(torch.zeros(2, 0, WIDTH), torch.zeros(0, KEY), torch.zeros(0).long(), torch.zeros(0).long(),
                      old, some_nodes(0, 2))  # fmt: skip
    like = torch.tensor([0.0, cosine, 0.0, (1 - cosine**2) ** 0.5, 0.0])
    new = torch.stack([torch.eye(KEY)[4], like])
    resolved = memory.resolve(row, new, some_nodes(1, 1))
    assert [node.superseded for node in resolved] == [False, superseded, False, False, False]
    assert resolved[3:] == some_nodes(1, 1)


def test_resolve_never_supersedes_by_or_of_a_date_line() -> None:
    memory = make()
    same = torch.eye(KEY)[[0, 1]]
    row = SemanticRow(torch.zeros(2, 0, WIDTH), torch.zeros(0, KEY), torch.zeros(0).long(), torch.zeros(0).long(),
                      same, some_nodes(0, 1))  # fmt: skip
    swapped = same[[1, 0]]  # the new date line repeats the old turn, the new turn repeats the old date line
    assert not any(node.superseded for node in memory.resolve(row, swapped, some_nodes(1, 1)))


def test_prune_keeps_the_newest_at_equal_salience_and_renumbers_owners() -> None:
    memory = make(c_s=3)
    row = memory.append(empty_row(), *piece([0, 1, 1]), some_nodes(0, 1))
    row = memory.append(row, *piece([0, 1, 2, 2], seed=1), some_nodes(1, 2))
    kept, salience = memory.prune(row, torch.zeros(5))
    assert kept.nodes == row.nodes[2:] and len(salience) == 3
    assert kept.owner.tolist() == [0, 1, 2, 2]
    assert torch.equal(kept.values, row.values[:, 3:]) and torch.equal(kept.keys, row.keys[3:])
    assert torch.equal(kept.pooled, row.pooled[2:])


def test_prune_goes_by_salience_and_stays_in_order() -> None:
    memory = make(c_s=2)
    row = memory.append(empty_row(), *piece([0, 1, 1, 2, 3]), some_nodes(0, 3))
    kept, salience = memory.prune(row, torch.tensor([0.1, 0.9, 0.2, 0.3]))
    assert [node.turn for node in kept.nodes] == [0, 2]
    assert kept.owner.tolist() == [0, 0, 1]
    torch.testing.assert_close(salience, torch.tensor([0.9, 0.3]))


def test_prune_within_capacity_changes_nothing() -> None:
    memory = make(c_s=3)
    row = memory.append(empty_row(), *piece([0, 1, 2]), some_nodes(0, 2))
    salience = torch.tensor([3.0, 2.0, 1.0])
    assert memory.prune(row, salience) == (row, salience)


def test_salience_reads_the_episodic_summary_and_learns() -> None:
    memory = make()
    pooled, summary = torch.randn(4, KEY), torch.randn(WIDTH)
    assert not memory.score_salience(pooled, summary).any()
    torch.nn.init.normal_(memory.salience.weight)
    one, other = memory.score_salience(pooled, summary), memory.score_salience(pooled, -summary)
    assert one.shape == (4,) and not torch.allclose(one, other)
    assert torch.isfinite(memory.score_salience(pooled, torch.zeros(WIDTH))).all()


def test_embed_is_two_rounds_of_mean_neighbour_messages() -> None:
    memory = make()
    row = memory.append(empty_row(), *piece([0, 1, 2, 3]), some_nodes(0, 3))
    torch.nn.init.normal_(memory.message.weight)
    weight = memory.message.weight.detach().numpy()
    near: dict[int, list[int]] = {i: [] for i in range(4)}
    for i, j, _ in edges(row.nodes):
        near[i].append(j)
        near[j].append(i)
    expected = row.pooled.numpy()
    for _ in range(2):
        received = np.stack([expected[near[i]].mean(0) for i in range(4)])
        expected = expected + received @ weight.T
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(memory.embed(row).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_embed_without_edges_or_messages_is_the_pooled_key() -> None:
    memory = make()
    row = memory.append(empty_row(), *piece([0, 0]), some_nodes(0, 0))
    assert torch.equal(memory.embed(row), row.pooled)
    row = memory.append(row, *piece([0, 1]), some_nodes(1, 1))
    torch.nn.init.zeros_(memory.message.weight)
    torch.testing.assert_close(memory.embed(row), row.pooled)
