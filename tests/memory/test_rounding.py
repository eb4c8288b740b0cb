from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.memory.rounding import CODE_STEPS, KEY_STEPS, from_stored, to_stored


@settings(deadline=None)
@given(values=st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=20))
def test_codes_are_kept_to_half_a_step_within_four_deviations_and_clamped_beyond(values: list[float]) -> None:
    codes = torch.tensor(values)
    stored = to_stored(codes, CODE_STEPS, torch.int8)
    assert stored.dtype == torch.int8
    expected = codes.clamp(-127 / 32, 127 / 32)
    assert (from_stored(stored, CODE_STEPS, torch.float32) - expected).abs().max() <= 0.5 / 32 + 1e-6


@pytest.mark.parametrize("steps", [CODE_STEPS, KEY_STEPS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_read_is_stored_as_the_same_number_again(steps: int, dtype: torch.dtype) -> None:
    """Forgetting writes layers anew from what the bank holds, in the dtype of the model."""
    stored = torch.arange(-127, 128).to(torch.int8)
    assert torch.equal(to_stored(from_stored(stored, steps, dtype), steps, torch.int8), stored)


def test_the_models_dtype_is_stored_as_it_is_and_passes_the_gradient() -> None:
    codes = torch.randn(3, 4, requires_grad=True)
    assert from_stored(to_stored(codes, CODE_STEPS, torch.float32), CODE_STEPS, torch.float32) is codes
    assert not from_stored(to_stored(codes, CODE_STEPS, torch.int8), CODE_STEPS, torch.float32).requires_grad
