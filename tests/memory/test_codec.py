from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlmf.memory.codec import LEAST_SCALE, StateCodec

LAYERS, WIDTH = 3, 8
SIZE = LAYERS * WIDTH


def sample(count: int, seed: int = 0) -> Tensor:
    """States whose directions differ in variance, far from zero in some dimensions."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(99)) * torch.logspace(0, -2, SIZE)
    rows = torch.randn(count, SIZE, generator=generator) @ mixing.T
    rows[:, ::7] += 30.0
    return rows.unflatten(1, (LAYERS, WIDTH))


def calibrated(code_dim: int, count: int = 2000) -> StateCodec:
    codec = StateCodec(LAYERS, WIDTH, code_dim, seed=0)
    codec.calibrate(sample(count))
    return codec


def of_session(rows: Tensor) -> Tensor:
    """``(S, L, D)`` as an encoder reads it, ``(L, S, D)``."""
    return rows.transpose(0, 1)


def test_codes_are_the_leading_principal_components_with_unit_variance() -> None:
    codec, rows = calibrated(5), sample(2000).flatten(1).double().numpy()
    standard = (rows - rows.mean(0)) / rows.std(0, ddof=1)
    _, singular, directions = np.linalg.svd(standard, full_matrices=False)
    codes = codec.encode(of_session(sample(2000))).double().numpy()
    expected = standard @ directions[:5].T / (singular[:5] / np.sqrt(len(rows) - 1))
    signs = np.sign((codes * expected).sum(0))
    np.testing.assert_allclose(codes, expected * signs, atol=2e-3)
    np.testing.assert_allclose(codes.std(0, ddof=1), 1.0, rtol=1e-3)
    kept = codec.decode(codec.encode(of_session(sample(2000)))).transpose(0, 1).flatten(1).double().numpy()
    lost = ((kept - rows) / rows.std(0, ddof=1)).var(0).sum() / SIZE
    assert lost == pytest.approx((singular[5:] ** 2).sum() / (singular**2).sum(), rel=1e-2)


@pytest.mark.parametrize("code_dim", [SIZE, 10 * SIZE])
@pytest.mark.parametrize("is_calibrated", [False, True])
def test_as_many_directions_as_there_are_lose_nothing(code_dim: int, is_calibrated: bool) -> None:
    codec = calibrated(code_dim) if is_calibrated else StateCodec(LAYERS, WIDTH, code_dim, seed=0)
    states = of_session(sample(50, seed=1))
    codes = codec.encode(states)
    assert codec.code_width == SIZE and codes.shape == (50, SIZE)
    torch.testing.assert_close(codec.decode(codes), states, rtol=1e-4, atol=1e-4)


def test_zero_keeps_the_states_to_the_bit_and_with_their_gradient() -> None:
    codec = StateCodec(LAYERS, WIDTH, 0, seed=0)
    codec.calibrate(sample(50))
    states = of_session(sample(7)).requires_grad_()
    codes = codec.encode(states)
    assert codes.shape == (7, SIZE) and torch.equal(codec.decode(codes), states)
    assert not dict(codec.named_buffers())
    codec.decode(codes).sum().backward()
    assert states.grad is not None and (states.grad == 1).all()


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_the_basis_is_orthonormal_and_the_same_every_time(is_calibrated: bool) -> None:
    one, two = (calibrated(6) if is_calibrated else StateCodec(LAYERS, WIDTH, 6, seed=0) for _ in range(2))
    torch.testing.assert_close(one.basis.T @ one.basis, torch.eye(6), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(tensor, two.get_buffer(name)) for name, tensor in one.named_buffers())
    assert not torch.equal(StateCodec(LAYERS, WIDTH, 6, seed=1).basis, StateCodec(LAYERS, WIDTH, 6, seed=0).basis)


def test_calibrating_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    calibrated(6)
    assert torch.equal(torch.rand(2), expected)


@settings(deadline=None, max_examples=30)
@given(weight=st.floats(0, 1), code_dim=st.integers(0, SIZE))
def test_a_blend_of_codes_decodes_to_the_blend_of_what_they_decode_to(weight: float, code_dim: int) -> None:
    codec = calibrated(code_dim, count=200)
    one, two = codec.encode(of_session(sample(4, seed=1))), codec.encode(of_session(sample(4, seed=2)))
    blended = weight * codec.decode(one) + (1 - weight) * codec.decode(two)
    torch.testing.assert_close(codec.decode(weight * one + (1 - weight) * two), blended, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [2, 5, 23])
def test_a_sample_of_few_tokens_still_makes_codes_that_other_text_does_not_blow_up(count: int) -> None:
    codec = calibrated(SIZE, count=count)
    torch.testing.assert_close(codec.basis.T @ codec.basis, torch.eye(SIZE), rtol=1e-4, atol=1e-4)
    assert (codec.scale >= LEAST_SCALE).all()
    states = of_session(sample(50, seed=1))
    torch.testing.assert_close(codec.decode(codec.encode(states)), states, rtol=1e-3, atol=1e-2)


def test_bfloat16_is_close_where_dimensions_are_many_deviations_from_zero() -> None:
    codec = calibrated(SIZE)
    rounded = of_session(sample(200, seed=1)).bfloat16()
    codes, exact = codec.encode(rounded), codec.encode(rounded.float())
    assert codes.dtype == torch.bfloat16
    # the mean is rounded too: the same for every token, and undone by decoding
    torch.testing.assert_close(codes.float() - codes.float().mean(0), exact - exact.mean(0), rtol=0.05, atol=0.1)
    again = codec.decode(codes)
    assert again.dtype == torch.bfloat16
    spread = codec.std.view(LAYERS, 1, WIDTH)
    assert (((again.float() - rounded.float()) / spread).square().mean() ** 0.5) < 0.05


def test_decode_puts_layers_first_whatever_comes_before_the_code() -> None:
    codec = calibrated(5)
    codes = torch.randn(2, 4, 5)
    assert codec.decode(codes).shape == (LAYERS, 2, 4, WIDTH)
    torch.testing.assert_close(codec.decode(codes)[:, 1, 2], codec.decode(codes[1, 2]))
