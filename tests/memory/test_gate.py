from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlmf.memory.gate import MASKED, LayerGate, Presence, entropy, layer_similarity, layer_weights, sharpen

simplex = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3).map(lambda w: [x / sum(w) for x in w])


@settings(deadline=None)
@given(
    similarity=st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6),
    present=st.lists(st.booleans(), min_size=3, max_size=3),
    beta=st.floats(0, 100),
)
def test_gamma_is_the_softmax_over_the_layers_present(
    similarity: list[float], present: list[bool], beta: float
) -> None:
    rows = np.array(similarity).reshape(2, 3)
    gamma = layer_weights(torch.tensor(rows, dtype=torch.float32)[None], Presence.of(torch.tensor([present])), beta)[
        0
    ].numpy()
    if not any(present):
        assert not gamma.any()
        return
    logits = np.where(present, beta * rows, -np.inf)
    expected = np.exp(logits - logits.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(gamma, expected, atol=1e-5)
    np.testing.assert_allclose(gamma.sum(-1), 1, atol=1e-6)
    assert (gamma[:, ~np.array(present)] == 0).all()


def test_beta_zero_weights_present_layers_equally() -> None:
    similarity = torch.tensor([[[0.9, -0.4, 0.1]]])
    assert layer_weights(similarity, Presence.of(torch.tensor([[True, False, True]])), 0.0).tolist() == [
        [[0.5, 0.0, 0.5]]
    ]


def test_entropy_in_nats() -> None:
    gamma = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(entropy(gamma), torch.tensor([math.log(3), math.log(2), 0.0]))


@settings(deadline=None)
@given(row=simplex, epsilon=st.floats(0.05, 1.09))
def test_sharpen_meets_epsilon_keeps_order_and_leaves_rows_within_alone(row: list[float], epsilon: float) -> None:
    top, second, _ = sorted(row, reverse=True)
    assume(top - second > 0.01)
    gamma = torch.tensor([[row]])
    sharp = sharpen(gamma, epsilon)
    if float(entropy(gamma)) <= epsilon:
        assert torch.equal(sharp, gamma)
        return
    assert float(entropy(sharp)) <= epsilon + 1e-4
    # no sharper than it has to be
    assert float(entropy(sharp)) > epsilon - 0.01
    assert float(sharp.sum()) == pytest.approx(1, abs=1e-5)
    assert int(sharp.argmax()) == int(gamma.argmax())


def test_sharpen_treats_each_row_by_itself_and_never_revives_an_absent_layer() -> None:
    gamma = torch.tensor([[0.4, 0.0, 0.6], [0.98, 0.02, 0.0], [0.3, 0.3, 0.4]])
    sharp = sharpen(gamma, 0.3)
    assert torch.equal(sharp[1], gamma[1])
    assert sharp[0, 1] == 0 and sharp[1, 2] == 0
    assert (entropy(sharp[[0, 2]]) <= 0.3 + 1e-4).all()


def test_similarity_is_the_best_slots_cosine_with_its_gradient() -> None:
    torch.manual_seed(0)
    query, key = 3 * torch.randn(2, 2, 4, 5), torch.randn(2, 2, 6, 5)
    mask = torch.tensor([[True, False, True, True, True, False]] * 2)
    query.requires_grad_(), key.requires_grad_()
    floor = torch.where(mask, 0.0, MASKED)[:, None, None]
    found = layer_similarity(query, query @ key.mT, 1 / key.norm(dim=-1), floor, (2, 2, 2))
    cosine = torch.cosine_similarity(query[..., None, :], key[:, :, None], dim=-1)
    expected = torch.stack([cosine[..., 0], cosine[..., 2:4].amax(-1), cosine[..., 4]], -1)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    ours = torch.autograd.grad((found * weight).sum(), [query, key])
    for one, other in zip(ours, torch.autograd.grad((expected * weight).sum(), [query, key]), strict=True):
        torch.testing.assert_close(one, other)


def test_a_layer_without_slots_has_a_similarity_and_no_share() -> None:
    query, key = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 2, 3)
    floor = torch.zeros(1, 1, 1, 2)
    found = layer_similarity(query, query @ key.mT, 1 / key.norm(dim=-1), floor, (2, 0, 0))
    assert found.isfinite().all()
    gamma = layer_weights(found[:, 0], Presence.of(torch.tensor([[True, False, False]])), 20.0)
    assert gamma.tolist() == [[[1.0, 0.0, 0.0]] * 2]


def test_gate_sharpens_at_inference_only() -> None:
    gate = LayerGate(beta=2.0, epsilon=0.2)
    similarity, present = torch.tensor([[[0.5, 0.1, -0.3]]]), Presence.of(torch.ones(1, 3, dtype=torch.bool))
    soft = gate.train()(similarity, present)
    torch.testing.assert_close(soft, (2 * similarity).softmax(-1))
    assert (entropy(soft) > 0.2).all()
    assert (entropy(gate.eval()(similarity, present)) <= 0.2 + 1e-3).all()


@pytest.mark.parametrize("beta", [20.0, 0.0])
def test_sharpness_starts_at_beta_and_is_learned(beta: float) -> None:
    gate = LayerGate(beta, epsilon=2.0)
    similarity = torch.tensor([[[0.5, 0.4, 0.1]]])
    gamma = gate(similarity, Presence.of(torch.ones(1, 3, dtype=torch.bool)))
    torch.testing.assert_close(gamma, (beta * similarity).softmax(-1), rtol=1e-4, atol=1e-6)
    gamma[0, 0, 0].backward()
    assert gate.log_beta.grad is not None
