from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.memory.working import write_working


def test_window_keeps_the_last_k_tokens_oldest_first() -> None:
    codes = torch.arange(7 * 3.0).view(7, 3)
    bank, mask = write_working(codes, k=4, c_w=6)
    assert bank.shape == (6, 3)
    assert torch.equal(bank[:4], codes[3:])
    assert torch.equal(bank[4:], torch.zeros(2, 3))
    assert mask.tolist() == [True] * 4 + [False] * 2


@settings(deadline=None)
@given(length=st.integers(1, 12), k=st.integers(1, 12), c_w=st.integers(1, 12))
def test_capacity_and_window_both_bound_what_is_kept(length: int, k: int, c_w: int) -> None:
    codes = torch.arange(1.0, length + 1)[:, None]
    bank, mask = write_working(codes, k, c_w)
    expected = list(range(1, length + 1))[-min(k, c_w) :]
    assert bank.shape == (c_w, 1)
    assert bank[mask, 0].tolist() == expected
    assert not bank[~mask].any()
