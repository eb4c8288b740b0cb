from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mlmf.memory.find import FindScores
from mlmf.memory.gate import Presence, layer_weights
from mlmf.memory.losses import embedding_spread, entropy_hinge, evidence_loss, retention_loss
from mlmf.memory.nodes import Node
from mlmf.memory.state import MemoryState

ROW_A = [(0, -1, 1), (0, 0, 2), (0, 1, 2)]
ROW_B = [(0, 0, 2)]


def test_retention_is_the_mean_drift_of_a_conversations_nodes_alive_at_both_times(
    toy_state: Callable[..., MemoryState],
) -> None:
    old = toy_state([ROW_A, ROW_B], seed=1)
    # the first node is pruned, others move to new places, and a new session arrives
    new = toy_state([[*ROW_A[1:], (1, -1, 1), (1, 0, 1)], [*ROW_B, (1, 0, 1)]], seed=2)
    after, before = new.embedding.numpy(), old.embedding.numpy()
    first = [((after[0, 0] - before[0, 1]) ** 2).sum(), ((after[0, 1] - before[0, 2]) ** 2).sum()]
    expected = [np.mean(first), ((after[1, 0] - before[1, 0]) ** 2).sum()]
    assert retention_loss(new, old).tolist() == pytest.approx(expected, rel=1e-5)
    assert retention_loss(old, old).tolist() == [0, 0]


def test_retention_is_zero_where_nothing_survived(toy_state: Callable[..., MemoryState]) -> None:
    assert retention_loss(toy_state([ROW_B]), toy_state([[(3, 0, 1)]])).item() == 0


def test_retention_gradient_reaches_both_times(toy_state: Callable[..., MemoryState]) -> None:
    old, new = toy_state([ROW_A], seed=1), toy_state([ROW_A], seed=2)
    old, new = (replace(s, embedding=s.embedding.requires_grad_()) for s in (old, new))
    retention_loss(new, old).sum().backward()
    torch.testing.assert_close(new.embedding.grad, 2 / 3 * (new.embedding - old.embedding).detach())
    torch.testing.assert_close(old.embedding.grad, -new.embedding.grad)


def test_evidence_loss_is_the_cross_entropy_over_nodes_and_nothing(toy_state: Callable[..., MemoryState]) -> None:
    state = toy_state([ROW_A] * 6)
    nodes = torch.tensor([[-torch.inf, 1.0, 3.0]] * 6, requires_grad=True)
    nothing = torch.full((6,), 2.0, requires_grad=True)
    evidence = [((0, 0),), ((0, 0), (0, 1)), (), None, ((7, 0),), ((0, -1), (0, 1))]
    share = np.log(np.exp([1.0, 3.0, 2.0]) / np.exp([1.0, 3.0, 2.0]).sum())
    # one turn; two; nothing; not known; forgotten since; a date line, which cannot be found, beside a turn
    expected = [-share[0], -(share[0] + share[1]) / 2, -share[2], 0, 0, -share[1]]
    loss = evidence_loss(FindScores(nodes, nothing), state, evidence)
    assert loss.tolist() == pytest.approx(expected, rel=1e-5)
    loss.sum().backward()
    assert torch.isfinite(nodes.grad).all() and not nodes.grad[[3, 4]].any() and not nothing.grad[[3, 4]].any()
    assert nothing.grad[2] < 0 < nothing.grad[0] and nodes.grad[0, 1] < 0 < nodes.grad[2, 1]


def test_without_a_score_for_nothing_only_turns_are_evidence(toy_state: Callable[..., MemoryState]) -> None:
    nodes = torch.tensor([[-torch.inf, 1.0, 3.0]] * 2)
    loss = evidence_loss(FindScores(nodes, None), toy_state([ROW_A] * 2), [(), ((0, 1),)])
    assert loss.tolist() == pytest.approx([0, math.log(1 + math.exp(-2))], rel=1e-5)


def test_hinge_counts_only_the_entropy_above_epsilon_on_counted_tokens() -> None:
    gamma = torch.tensor([[[1 / 3] * 3, [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    mask = torch.tensor([[1, 1, 0]])
    expected = (math.log(3) - 1.0) / 2
    assert entropy_hinge(gamma, 1.0, mask).item() == pytest.approx(expected, rel=1e-5)
    assert entropy_hinge(gamma, 1.1, mask).item() == 0
    assert entropy_hinge(gamma, 1.0, torch.zeros(1, 3)).item() == 0


def test_hinge_has_a_finite_gradient_where_a_layer_is_absent() -> None:
    similarity = torch.tensor([[[0.1, 0.2, 0.3]]], requires_grad=True)
    gamma = layer_weights(similarity, Presence.of(torch.tensor([[True, True, False]])), 20.0)
    entropy_hinge(gamma, 0.1, torch.ones(1, 1)).backward()
    assert similarity.grad is not None and torch.isfinite(similarity.grad).all()
    # the hinge pulls apart the two layers that are there
    assert similarity.grad[0, 0, 0] > 0 > similarity.grad[0, 0, 1] and similarity.grad[0, 0, 2] == 0


def with_embeddings(state: MemoryState, embedding: torch.Tensor) -> MemoryState:
    nodes = tuple(Node(0, i, f"D0:{i}", "") for i in range(embedding.shape[1]))
    return replace(state, embedding=embedding, nodes=(nodes,) * embedding.shape[0])


def test_spread_tells_a_full_sphere_from_a_collapse(toy_state: Callable[..., MemoryState]) -> None:
    state = toy_state([ROW_A])
    sphere = F.normalize(torch.randn(1, 400, 32), dim=-1)
    assert embedding_spread(with_embeddings(state, sphere)) == pytest.approx(1.0, abs=0.05)
    collapsed = sphere[:, :1].expand(1, 400, 32)
    assert embedding_spread(with_embeddings(state, collapsed)) == pytest.approx(0.0, abs=1e-5)
    assert embedding_spread(toy_state([ROW_B])) == 0.0
