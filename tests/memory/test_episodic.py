from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.episodic import EpisodicMemory


def make(slots: int, *, routed: bool, alpha: float = 0.9) -> EpisodicMemory:
    torch.manual_seed(0)
    return EpisodicMemory(slots, key_dim=6, alpha=alpha, routed=routed)


def session(seed: int, length: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(2, length, 5, generator=generator)
    return states, F.normalize(torch.randn(length, 6, generator=generator), dim=-1)


def test_pool_is_attention_of_the_learned_queries_over_the_keys() -> None:
    memory = make(4, routed=False)
    states, keys = session(1)
    logits = 8.0 * memory.queries.detach().numpy() @ keys.numpy().T
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = np.einsum("cs,lsd->lcd", weights, states.numpy())
    np.testing.assert_allclose(memory.pool(states, keys).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sessions", [1, 2, 5, 27])
def test_scalar_form_leaves_the_first_session_its_closed_form_weight(sessions: int) -> None:
    memory = make(4, routed=False, alpha=0.9)
    first, silent = session(1), session(2)
    slots, mask = torch.zeros(2, 4, 5), torch.zeros(4, dtype=torch.bool)
    slots, mask = memory(slots, mask, *first)
    for _ in range(sessions - 1):
        slots, mask = memory(slots, mask, torch.zeros_like(silent[0]), silent[1])
    expected = (1 - 0.9) * 0.9 ** (sessions - 1) * memory.pool(*first)
    torch.testing.assert_close(slots, expected)
    assert mask.all()


def test_scalar_form_is_equation_5_at_every_step() -> None:
    memory = make(3, routed=False, alpha=0.7)
    old = torch.randn(2, 3, 5)
    new, _ = memory(old, torch.ones(3, dtype=torch.bool), *session(4))
    torch.testing.assert_close(new, 0.7 * old + 0.3 * memory.pool(*session(4)))


def test_routed_form_fills_empty_slots_first_and_whole() -> None:
    memory = make(16, routed=True)
    assert memory.writes == 2
    slots, mask = torch.zeros(2, 16, 5), torch.zeros(16, dtype=torch.bool)
    for number in range(8):
        before, filled = slots, mask
        slots, mask = memory(slots, mask, *session(number))
        new = mask & ~filled
        assert mask.sum() == 2 * (number + 1)
        assert new.nonzero().flatten().tolist() == [2 * number, 2 * number + 1]
        # a first write has nothing to blend with, and what was written before stands to the bit
        assert torch.equal(slots[:, new], memory.pool(*session(number))[:, new])
        assert torch.equal(slots[:, ~new], before[:, ~new])
    assert mask.all()


def test_routed_form_leaves_untouched_slots_to_the_bit_and_blends_the_nearest() -> None:
    memory = make(16, routed=True, alpha=0.9)
    old, mask = torch.randn(2, 16, 5), torch.ones(16, dtype=torch.bool)
    pooled = memory.pool(*session(3)).detach()
    new, after = memory(old, mask, *session(3))
    likeness = F.cosine_similarity(old, pooled, dim=-1).mean(0)
    written = likeness.topk(2).indices.sort().values
    changed = (new != old).any(0).any(-1)
    assert changed.nonzero().flatten().tolist() == written.tolist()
    torch.testing.assert_close(new[:, written], 0.9 * old[:, written] + 0.1 * pooled[:, written])
    assert torch.equal(new[:, ~changed], old[:, ~changed])
    assert after.all()


def test_gradient_reaches_the_queries_through_both_forms() -> None:
    for routed in (False, True):
        memory = make(8, routed=routed)
        slots, _ = memory(torch.zeros(2, 8, 5), torch.zeros(8, dtype=torch.bool), *session(1))
        slots.square().sum().backward()
        assert memory.queries.grad is not None and memory.queries.grad.abs().sum() > 0
