from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlmf.memory.graph import edges
from mlmf.memory.nodes import Node, versions
from mlmf.memory.semantic import LENGTH, SemanticMemory, SemanticRow, session_nodes
from mlmf.types import Session, Turn

CODE, KEY = 6, 5


def make(c_s: int = 100, c_m: int = 1000, node_tokens: int = 64, tau_s: float = 0.97) -> SemanticMemory:
    torch.manual_seed(0)
    return SemanticMemory(CODE, KEY, c_s, c_m, node_tokens, tau_s)


def empty_row() -> SemanticRow:
    return SemanticRow(
        torch.zeros(0, CODE), torch.zeros(0, KEY), torch.zeros(0).long(), torch.zeros(0).long(),
        torch.zeros(0, KEY), (),
    )  # fmt: skip


def piece(pieces: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n = len(pieces)
    keys = F.normalize(torch.randn(n, KEY, generator=generator), dim=-1)
    return torch.randn(n, CODE, generator=generator), keys, torch.arange(n), torch.tensor(pieces)


def some_nodes(session: int, turns: int) -> tuple[Node, ...]:
    header = Node(session, -1, "", "[date]")
    return (header, *(Node(session, i, f"D{session}:{i}", "line") for i in range(turns)))


def test_session_nodes_follow_the_pieces() -> None:
    session = Session(3, None, (Turn("t", "Anna", "I met Sarah in Paris."), Turn("u", "Ben", "yes", caption="a dog")))
    header, first, second = session_nodes(session)
    assert header == Node(3, -1, "", "[undated]") and header.is_session
    assert first == Node(3, 0, "t", "[undated] Anna: I met Sarah in Paris.", ("sarah", "paris"), speaker="Anna")
    assert second.line == "[undated] Ben: yes [shares a picture: a dog]"
    assert "dog" in second.entities
    dated = session_nodes(Session(0, datetime(2023, 5, 8, 13, 56), session.turns))
    assert {node.date for node in dated} == {"2023-05-08T13:56:00"}


def test_session_nodes_ask_the_extractor_with_the_speakers() -> None:
    asked = []

    def extract(text: str, speakers: Sequence[str] = ()) -> tuple[str, ...]:
        asked.append((text, tuple(speakers)))
        return ("thing",)

    session = Session(0, None, (Turn("t", "Anna", "one"), Turn("u", "Ben", "two"), Turn("v", "Anna", "three")))
    assert [node.entities for node in session_nodes(session, extract)] == [(), ("thing",), ("thing",), ("thing",)]
    assert asked == [(text, ("Anna", "Ben")) for text in ("one", "two", "three")]


def test_append_keeps_codes_and_says_who_owns_them() -> None:
    memory = make()
    codes, keys, tokens, pieces = piece([0, 0, 1, 1, 1, 2])
    row = memory.append(empty_row(), codes, keys, tokens, pieces, some_nodes(0, 2))
    assert torch.equal(row.values, codes) and torch.equal(row.keys, keys) and torch.equal(row.tokens, tokens)
    assert row.owner.tolist() == [0, 0, 1, 1, 1, 2]
    sums = np.stack([keys.numpy()[[0, 1]].sum(0), keys.numpy()[2:5].sum(0), keys.numpy()[5]])
    np.testing.assert_allclose(row.pooled.numpy(), sums / np.linalg.norm(sums, axis=1, keepdims=True), rtol=1e-5)
    more = memory.append(row, *piece([0, 1, 1], seed=1), some_nodes(1, 1))
    assert more.owner.tolist() == [0, 0, 1, 1, 1, 2, 3, 4, 4]
    assert torch.equal(more.values[:6], codes)
    assert [(n.session, n.turn) for n in more.nodes] == [(0, -1), (0, 0), (0, 1), (1, -1), (1, 0)]


def test_a_long_turn_keeps_its_first_tokens() -> None:
    codes, keys, tokens, pieces = piece([0, 1, 1, 1, 1, 2, 2])
    row = make(node_tokens=2).append(empty_row(), codes, keys, tokens, pieces, some_nodes(0, 2))
    assert row.owner.tolist() == [0, 1, 1, 2, 2]
    assert row.tokens.tolist() == [0, 1, 2, 5, 6]
    assert torch.equal(row.values, codes[[0, 1, 2, 5, 6]])


def test_a_turn_without_tokens_still_has_a_node() -> None:
    row = make().append(empty_row(), *piece([0, 2, 2]), some_nodes(0, 2))
    assert len(row.nodes) == len(row.pooled) == 3
    assert not row.pooled[1].any() and torch.isfinite(row.pooled).all()


@pytest.mark.parametrize(("cosine", "superseded"), [(0.99, True), (0.95, False)])
def test_resolve_marks_the_older_near_duplicate(cosine: float, superseded: bool) -> None:
    memory = make(tau_s=0.97)
    old = torch.eye(KEY)[[0, 1, 2]]
    row = pooled_row(old, some_nodes(0, 2))
    like = torch.tensor([0.0, cosine, 0.0, (1 - cosine**2) ** 0.5, 0.0])
    new = torch.stack([torch.eye(KEY)[4], like])
    resolved = memory.resolve(row, new, some_nodes(1, 1))
    assert [node.superseded_by for node in resolved] == [None, (1, 0) if superseded else None, None, None, None]
    assert resolved[3:] == some_nodes(1, 1)


def test_resolve_never_supersedes_by_or_of_a_date_line() -> None:
    memory = make()
    same = torch.eye(KEY)[[0, 1]]
    row = pooled_row(same, some_nodes(0, 1))
    swapped = same[[1, 0]]  # the new date line repeats the old turn, the new turn repeats the old date line
    assert not any(node.superseded for node in memory.resolve(row, swapped, some_nodes(1, 1)))


def pooled_row(pooled: Tensor, nodes: tuple[Node, ...]) -> SemanticRow:
    """Nodes without tokens: what resolving and pruning look at."""
    none = torch.zeros(0).long()
    return SemanticRow(torch.zeros(0, CODE), torch.zeros(0, KEY), none, none, pooled, nodes)


def test_repeated_updates_form_a_chain_to_the_most_alike_turn() -> None:
    memory = make(tau_s=0.9)
    fact, date = torch.eye(KEY)[0], torch.eye(KEY)[4]
    near = F.normalize(fact + 0.2 * torch.eye(KEY)[1], dim=0)
    row = pooled_row(torch.stack([date, fact]), some_nodes(0, 1))
    for session in (1, 2):
        # two turns repeat the fact, the second to the letter
        pooled = torch.stack([date, near, fact])
        nodes = memory.resolve(row, pooled, some_nodes(session, 2))
        row = pooled_row(torch.cat([row.pooled, pooled]), nodes)
    links = {node.key: node.superseded_by for node in row.nodes if node.superseded}
    assert links == {(0, 0): (1, 1), (1, 0): (2, 0), (1, 1): (2, 1)}
    assert versions(row.nodes, 1) == [1, 4, 7] and versions(row.nodes, 6) == [3, 6]


def test_relink_gives_what_would_have_been_resolved_without_the_forgotten_version() -> None:
    memory = make(tau_s=0.9)
    fact, other, date = torch.eye(KEY)[0], torch.eye(KEY)[2], torch.eye(KEY)[4]
    alone = [(0, torch.stack([date, fact])), (2, torch.stack([date, other])), (3, torch.stack([date, fact]))]

    def told(sessions: list[tuple[int, Tensor]]) -> SemanticRow:
        row = pooled_row(torch.zeros(0, KEY), ())
        for index, pooled in sessions:
            nodes = memory.resolve(row, pooled, some_nodes(index, 1))
            row = pooled_row(torch.cat([row.pooled, pooled]), nodes)
        return row

    with_update = told([alone[0], (1, torch.stack([date, fact])), *alone[1:]])
    assert with_update.nodes[1].superseded_by == (1, 0)
    left = memory.relink(with_update.take([0, 1, 4, 5, 6, 7]), [1])
    assert left.nodes == told(alone).nodes and left.nodes[1].superseded_by == (3, 0)
    shorter = memory.relink(with_update.take([0, 1, 4, 5]), [1])
    assert not shorter.nodes[1].superseded


def test_sessions_written_out_of_order_are_resolved_as_if_in_order() -> None:
    memory = make(tau_s=0.9)
    fact, date = torch.eye(KEY)[0], torch.eye(KEY)[4]
    keys = F.normalize(torch.stack([date, fact, fact + 0.1 * torch.eye(KEY)[1]]), dim=-1)

    def links(order: Sequence[int]) -> dict[tuple[int, int], tuple[int, int] | None]:
        row = empty_row()
        for session in order:
            pieces = torch.arange(3)
            row = memory.append(row, torch.zeros(3, CODE), keys, pieces, pieces, some_nodes(session, 2))
        return {node.key: node.superseded_by for node in row.nodes}

    expected = links([0, 1, 2, 3])
    assert expected[0, 0] == (1, 0) and expected[3, 0] is None
    for order in ([3, 2, 1, 0], [3, 0, 2, 1], [1, 3, 0, 2]):
        assert links(order) == expected


def mention(nodes: tuple[Node, ...], turn: int, *names: str) -> tuple[Node, ...]:
    return tuple(replace(node, entities=names) if node.turn == turn else node for node in nodes)


def test_prune_goes_by_salience_first() -> None:
    memory = make(c_s=3)
    row = memory.append(empty_row(), *piece([0, 1, 1, 2, 3]), some_nodes(0, 3))
    kept, salience = memory.prune(row, torch.tensor([0.1, 0.9, 0.2, 0.3]))
    assert [node.turn for node in kept.nodes] == [-1, 0, 2]
    assert kept.owner.tolist() == [0, 1, 1, 2]
    torch.testing.assert_close(salience, torch.tensor([0.1, 0.9, 0.3]))
    assert torch.equal(kept.values, row.values[[0, 1, 2, 4]]) and torch.equal(kept.keys, row.keys[[0, 1, 2, 4]])
    assert torch.equal(kept.pooled, row.pooled[[0, 1, 3]])


def test_prune_goes_by_length_at_equal_salience_and_salience_can_outweigh_it() -> None:
    memory = make(c_s=2)
    row = memory.append(empty_row(), *piece([0, 1, 2, 2, 2, 3]), some_nodes(0, 3))
    assert [node.turn for node in memory.prune(row, torch.zeros(4))[0].nodes] == [-1, 1]
    assert [node.turn for node in memory.prune(row, torch.tensor([0.0, 0.6, 0.0, 0.0]))[0].nodes] == [-1, 0]


def test_prune_goes_by_degree_at_equal_salience() -> None:
    memory = make(c_s=4)
    first, second = mention(some_nodes(0, 1), 0, "miso", "oslo"), mention(some_nodes(1, 1), 0, "miso")
    third, fourth = some_nodes(2, 1), mention(some_nodes(3, 1), 0, "oslo")
    row = pooled_row(torch.zeros(8, KEY), (*first, *second, *third, *fourth))
    kept, _ = memory.prune(row, torch.zeros(8))
    # the oldest turn hangs together with two others; the newer of those with one each comes next
    assert [node.session for node in kept.nodes] == [0, 0, 3, 3]


def test_prune_goes_by_recency_at_equal_salience_and_degree() -> None:
    memory = make(c_s=4)
    row = pooled_row(torch.zeros(6, KEY), (*some_nodes(0, 1), *some_nodes(1, 1), *some_nodes(2, 1)))
    kept, _ = memory.prune(row, torch.zeros(6))
    assert [node.session for node in kept.nodes] == [1, 1, 2, 2]


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    c_s=st.integers(2, 12),
    seed=st.integers(0, 1000),
)
def test_a_date_line_is_kept_exactly_as_long_as_a_turn_of_its_session(sizes: list[int], c_s: int, seed: int) -> None:
    memory = make(c_s=c_s)
    nodes = tuple(node for session, size in enumerate(sizes) for node in some_nodes(session, size))
    salience = torch.rand(len(nodes), generator=torch.Generator().manual_seed(seed))
    kept, _ = memory.prune(pooled_row(torch.zeros(len(nodes), KEY), nodes), salience)
    turns = {node.session for node in kept.nodes if not node.is_session}
    assert {node.session for node in kept.nodes if node.is_session} == turns
    assert 2 <= len(kept.nodes) <= c_s
    best = max((i for i, node in enumerate(nodes) if not node.is_session), key=lambda i: float(salience[i]))
    assert nodes[best] in kept.nodes


def test_prune_keeps_within_the_token_slots_and_fills_them_with_what_fits() -> None:
    memory = make(c_m=7)
    row = memory.append(empty_row(), *piece([0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4]), some_nodes(0, 4))
    kept, salience = memory.prune(row, torch.tensor([0.0, 9.0, 8.0, 7.0, 6.0]))
    # a date line of 1 and a turn of 3; the turn of 4 would be one too many; the turns of 2 and 1 fit
    assert [node.turn for node in kept.nodes] == [-1, 0, 2, 3]
    assert kept.owner.tolist() == [0, 1, 1, 1, 2, 2, 3] and kept.tokens.tolist() == [0, 1, 2, 3, 8, 9, 10]
    torch.testing.assert_close(salience, torch.tensor([0.0, 9.0, 7.0, 6.0]))


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=5),
    c_m=st.integers(5, 30),
    seed=st.integers(0, 1000),
)
def test_neither_capacity_is_ever_exceeded_and_date_lines_go_with_their_turns(
    sizes: list[list[int]], c_m: int, seed: int
) -> None:
    memory, row = make(c_s=8, c_m=c_m), empty_row()
    for session, turns in enumerate(sizes):
        pieces = [0] + [i + 1 for i, size in enumerate(turns) for _ in range(size)]
        row = memory.append(row, *piece(pieces), some_nodes(session, len(turns)))
    salience = 9 * torch.rand(len(row.nodes), generator=torch.Generator().manual_seed(seed))
    lengths = torch.bincount(row.owner, minlength=len(row.nodes)).float().log()
    kept, _ = memory.prune(row, salience)
    assert len(kept.nodes) <= 8 and len(kept.owner) <= c_m
    turns_kept = {node.session for node in kept.nodes if not node.is_session}
    assert {node.session for node in kept.nodes if node.is_session} == turns_kept
    best = max(
        (i for i, node in enumerate(row.nodes) if not node.is_session),
        key=lambda i: float(salience[i] + LENGTH * lengths[i]),
    )
    assert row.nodes[best] in kept.nodes


def test_pruning_keeps_a_link_to_a_version_that_is_gone() -> None:
    memory = make(c_s=2)
    old = tuple(replace(n, superseded_by=(1, 0)) if n.turn == 0 else n for n in some_nodes(0, 1))
    row = pooled_row(torch.zeros(4, KEY), (*old, *some_nodes(1, 1)))
    kept, _ = memory.prune(row, torch.tensor([0.0, 1.0, 0.0, 0.0]))
    assert kept.nodes == old


def test_prune_within_capacity_changes_nothing() -> None:
    memory = make(c_s=3)
    row = memory.append(empty_row(), *piece([0, 1, 2]), some_nodes(0, 2))
    salience = torch.tensor([3.0, 2.0, 1.0])
    assert memory.prune(row, salience) == (row, salience)


def test_salience_reads_the_episodic_summary_and_learns() -> None:
    memory = make()
    pooled, summary = torch.randn(4, KEY), torch.randn(4, CODE)
    assert not memory.score_salience(pooled, summary).any()
    torch.nn.init.normal_(memory.salience.weight)
    one, other = memory.score_salience(pooled, summary), memory.score_salience(pooled, -summary)
    assert one.shape == (4,) and not torch.allclose(one, other)
    assert torch.isfinite(memory.score_salience(pooled, torch.zeros(4, CODE))).all()


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
    np.testing.assert_allclose(memory.embed([row])[0].detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_embed_without_edges_or_messages_is_the_pooled_key() -> None:
    memory = make()
    row = memory.append(empty_row(), *piece([0, 0]), some_nodes(0, 0))
    assert torch.equal(memory.embed([row])[0], row.pooled)
    row = memory.append(row, *piece([0, 1]), some_nodes(1, 1))
    torch.nn.init.zeros_(memory.message.weight)
    torch.testing.assert_close(memory.embed([row])[0], row.pooled)
