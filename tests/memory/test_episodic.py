from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.config.model import AlphaMode
from mlmf.memory.episodic import EpisodicMemory


def make(slots: int, mode: AlphaMode, alpha: float = 0.9) -> EpisodicMemory:
    torch.manual_seed(0)
    return EpisodicMemory(slots, key_dim=6, alpha=alpha, mode=mode)


def session(seed: int, length: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(length, 5, generator=generator)
    return codes, F.normalize(torch.randn(length, 6, generator=generator), dim=-1)


def test_pool_is_attention_of_the_learned_queries_over_the_keys() -> None:
    memory = make(4, "scalar")
    codes, keys = session(1)
    logits = 8.0 * memory.queries.detach().numpy() @ keys.numpy().T
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = weights @ codes.numpy()
    np.testing.assert_allclose(memory.pool(codes, keys).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sessions", [1, 2, 5, 27])
def test_scalar_form_leaves_the_first_session_its_closed_form_weight(sessions: int) -> None:
    memory = make(4, "scalar", alpha=0.9)
    first, silent = session(1), session(2)
    slots, mask = torch.zeros(4, 5), torch.zeros(4, dtype=torch.bool)
    slots, mask = memory(slots, mask, *first)
    for _ in range(sessions - 1):
        slots, mask = memory(slots, mask, torch.zeros_like(silent[0]), silent[1])
    expected = (1 - 0.9) * 0.9 ** (sessions - 1) * memory.pool(*first)
    torch.testing.assert_close(slots, expected)
    assert mask.all()


def test_scalar_form_is_equation_5_at_every_step() -> None:
    memory = make(3, "scalar", alpha=0.7)
    old = torch.randn(3, 5)
    new, _ = memory(old, torch.ones(3, dtype=torch.bool), *session(4))
    torch.testing.assert_close(new, 0.7 * old + 0.3 * memory.pool(*session(4)))


@pytest.mark.parametrize("sessions", [1, 2, 5, 27])
def test_per_slot_form_leaves_each_slot_its_own_closed_form_weight(sessions: int) -> None:
    memory = make(4, "per_slot")
    alpha = np.exp(-1 / np.array([1.0, 128 ** (1 / 3), 128 ** (2 / 3), 128.0]))
    np.testing.assert_allclose(memory.alphas().detach().numpy(), alpha, rtol=1e-5)
    first, silent = session(1), session(2)
    slots, mask = torch.zeros(4, 5), torch.zeros(4, dtype=torch.bool)
    slots, mask = memory(slots, mask, *first)
    for _ in range(sessions - 1):
        slots, mask = memory(slots, mask, torch.zeros_like(silent[0]), silent[1])
    weight = ((1 - alpha) * alpha ** (sessions - 1))[:, None]
    np.testing.assert_allclose(
        slots.detach().numpy(), weight * memory.pool(*first).detach().numpy(), rtol=1e-4, atol=1e-7
    )
    assert mask.all()


def test_slow_slots_keep_what_the_paper_loses() -> None:
    """Over 27 sessions a shared alpha of 0.9 leaves the first 0.0065; time scales up to 128 leave some slots more."""
    alpha = make(16, "per_slot").alphas().detach()
    weight = (1 - alpha) * alpha**26
    assert float(weight.max()) > 2 * 0.1 * 0.9**26
    assert (alpha[1:] > alpha[:-1]).all()


def test_each_slot_learns_its_own_alpha_and_stays_between_0_and_1() -> None:
    memory = make(4, "per_slot")
    old, mask = torch.randn(4, 5), torch.ones(4, dtype=torch.bool)
    new, _ = memory(old, mask, *session(1))
    new[2].sum().backward()
    grad = memory.alpha_logits.grad
    assert grad is not None and grad.nonzero().flatten().tolist() == [2]
    with torch.no_grad():
        memory.alpha_logits.copy_(torch.tensor([-50.0, 0.0, 3.0, 50.0]))
    assert ((memory.alphas() >= 0) & (memory.alphas() <= 1)).all()
    assert not hasattr(make(4, "routed"), "alpha_logits") and not hasattr(make(4, "scalar"), "alpha_logits")


def test_slow_slots_move_in_bfloat16_too() -> None:
    """A share of 1/128 is two spacings of bfloat16: blended there, half of a slow slot's writes would be lost."""
    memory = make(4, "per_slot").to(torch.bfloat16)
    codes, keys = session(1)
    slots, mask = torch.zeros(4, 5, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bool)
    exact = torch.zeros(4, 5)
    alpha = memory.alphas().detach()[:, None]
    pooled = memory.pool(codes.bfloat16(), keys.bfloat16()).detach().float()
    for _ in range(20):
        slots, mask = memory(slots, mask, codes.bfloat16(), keys.bfloat16())
        exact = alpha * exact + (1 - alpha) * pooled
    assert slots.dtype == torch.bfloat16
    torch.testing.assert_close(slots.float(), exact, rtol=0.05, atol=0.01)


def test_routed_form_keeps_session_1_to_the_bit_through_30_sessions_about_something_else() -> None:
    memory = make(16, "routed")
    generator = torch.Generator().manual_seed(7)

    def about(direction: int) -> tuple[Tensor, Tensor]:
        codes = 0.1 * torch.randn(9, 5, generator=generator)
        codes[:, direction] += 1.0
        return codes, F.normalize(torch.randn(9, 6, generator=generator), dim=-1)

    slots, mask = memory(torch.zeros(16, 5), torch.zeros(16, dtype=torch.bool), *about(0))
    told, kept = mask.nonzero().flatten().tolist(), slots[mask].clone()
    changed = set()
    for _ in range(30):
        before = slots
        slots, mask = memory(slots, mask, *about(1))
        changed |= set((slots != before).any(-1).nonzero().flatten().tolist())
    assert torch.equal(slots[told], kept)
    assert len(changed) == 14 and not changed & set(told)
    # and what is about the same thing is blended into it
    slots, _ = memory(slots, mask, *about(0))
    assert not torch.equal(slots[told], kept)


def test_routed_form_fills_empty_slots_first_and_whole() -> None:
    memory = make(16, "routed")
    assert memory.writes == 2
    slots, mask = torch.zeros(16, 5), torch.zeros(16, dtype=torch.bool)
    for number in range(8):
        before, filled = slots, mask
        slots, mask = memory(slots, mask, *session(number))
        new = mask & ~filled
        assert mask.sum() == 2 * (number + 1)
        assert new.nonzero().flatten().tolist() == [2 * number, 2 * number + 1]
        # a first write has nothing to blend with, and what was written before stands to the bit
        assert torch.equal(slots[new], memory.pool(*session(number))[new])
        assert torch.equal(slots[~new], before[~new])
    assert mask.all()


def test_routed_form_leaves_untouched_slots_to_the_bit_and_blends_the_nearest() -> None:
    memory = make(16, "routed", alpha=0.9)
    old, mask = torch.randn(16, 5), torch.ones(16, dtype=torch.bool)
    pooled = memory.pool(*session(3)).detach()
    new, after = memory(old, mask, *session(3))
    likeness = F.cosine_similarity(old, pooled, dim=-1)
    written = likeness.topk(2).indices.sort().values
    changed = (new != old).any(-1)
    assert changed.nonzero().flatten().tolist() == written.tolist()
    torch.testing.assert_close(new[written], 0.9 * old[written] + 0.1 * pooled[written])
    assert torch.equal(new[~changed], old[~changed])
    assert after.all()


def test_gradient_reaches_the_queries_through_every_form() -> None:
    modes: tuple[AlphaMode, ...] = ("scalar", "per_slot", "routed")
    for mode in modes:
        memory = make(8, mode)
        slots, _ = memory(torch.zeros(8, 5), torch.zeros(8, dtype=torch.bool), *session(1))
        slots.square().sum().backward()
        assert memory.queries.grad is not None and memory.queries.grad.abs().sum() > 0
