from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlmf.memory.codec import OWN, RIDGE, StateCodec

LAYERS, WIDTH = 3, 8
SIZE = LAYERS * WIDTH


def sample(count: int, seed: int = 0) -> Tensor:
    """States whose directions differ in variance, far from zero in some dimensions."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(99)) * torch.logspace(0, -2, SIZE)
    rows = torch.randn(count, SIZE, generator=generator) @ mixing.T
    rows[:, ::7] += 30.0
    return rows.unflatten(1, (LAYERS, WIDTH))


def reads_of(states: Tensor, seed: int = 0) -> list[list[Tensor]]:
    """Two linear readings of each layer, of very different size, of 2 numbers each."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(LAYERS, 2, WIDTH, 2, generator=generator)
    return [[states[:, layer] @ maps[layer, 0], 100 * states[:, layer] @ maps[layer, 1]] for layer in range(LAYERS)]


def calibrated(code_dim: int, count: int = 2000) -> StateCodec:
    codec = StateCodec(LAYERS, WIDTH, code_dim, seed=0)
    states = sample(count)
    codec.calibrate(states, reads_of(states))
    return codec


def of_session(rows: Tensor) -> Tensor:
    """``(S, L, D)`` as an encoder reads it, ``(L, S, D)``."""
    return rows.transpose(0, 1)


def test_codes_are_the_principal_components_of_what_is_read_and_decode_by_least_squares() -> None:
    states = sample(2000)
    rows = states.flatten(1).double().numpy()
    rows = rows - rows.mean(0)
    standard = rows / rows.std(0, ddof=1)
    views = []
    for layer, parts in enumerate(reads_of(states)):
        x = standard[:, layer * WIDTH : (layer + 1) * WIDTH]
        for part in parts:
            y = part.double().numpy()
            y = y - y.mean(0)
            fitted = np.linalg.solve(x.T @ x + RIDGE * len(x) * np.eye(WIDTH), x.T @ y)
            views.append(x @ fitted / np.sqrt((y**2).mean()))
    views.append(OWN * standard)
    left, _, _ = np.linalg.svd(np.concatenate(views, 1), full_matrices=False)
    expected = left[:, :5] * np.sqrt(len(rows) - 1)
    codec = calibrated(5)
    codes = codec.encode(of_session(states)).double().numpy()
    signs = np.sign((codes * expected).sum(0))
    np.testing.assert_allclose(codes, expected * signs, atol=5e-3)
    np.testing.assert_allclose(np.cov(codes.T), np.eye(5), atol=5e-3)
    best = codes @ np.linalg.lstsq(codes, rows, rcond=None)[0]
    decoded = codec.decode(codec.encode(of_session(states))).transpose(0, 1).flatten(1).double().numpy()
    np.testing.assert_allclose(decoded - states.flatten(1).double().numpy().mean(0), best, atol=5e-2)


def test_what_is_read_survives_where_the_states_do_not() -> None:
    """Twelve numbers are read of 24: as many codes keep them, while half of the states is lost."""
    states, other = sample(2000), sample(500, seed=1)
    codec = calibrated(12)
    kept = codec.decode(codec.encode(of_session(other))).transpose(0, 1)
    for exact, read in zip(reads_of(other), reads_of(kept), strict=True):
        for one, two in zip(exact, read, strict=True):
            assert ((one - two).square().sum() / (one - one.mean(0)).square().sum()).item() < 0.01
    lost = ((kept - other) / states.std(0)).square().mean().item()
    assert lost > 0.02


@pytest.mark.parametrize("code_dim", [SIZE, 10 * SIZE])
@pytest.mark.parametrize("count", [0, 2, 2000])
def test_codes_as_wide_as_the_states_lose_nothing(code_dim: int, count: int) -> None:
    codec = calibrated(code_dim, count) if count else StateCodec(LAYERS, WIDTH, code_dim, seed=0)
    states = of_session(sample(50, seed=1))
    codes = codec.encode(states)
    assert codec.code_width == SIZE and codes.shape == (50, SIZE)
    torch.testing.assert_close(codec.decode(codes), states, rtol=1e-4, atol=1e-3)


def test_zero_keeps_the_states_to_the_bit_and_with_their_gradient() -> None:
    codec = calibrated(0, count=50)
    states = of_session(sample(7)).requires_grad_()
    codes = codec.encode(states)
    assert codes.shape == (7, SIZE) and torch.equal(codec.decode(codes), states)
    assert not dict(codec.named_buffers())
    codec.decode(codes).sum().backward()
    assert states.grad is not None and (states.grad == 1).all()


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_the_directions_are_the_same_every_time_and_depend_on_the_seed_before(is_calibrated: bool) -> None:
    one, two = (calibrated(6) if is_calibrated else StateCodec(LAYERS, WIDTH, 6, seed=0) for _ in range(2))
    assert all(torch.equal(tensor, two.get_buffer(name)) for name, tensor in one.named_buffers())
    assert not torch.equal(StateCodec(LAYERS, WIDTH, 6, seed=1).encoder, StateCodec(LAYERS, WIDTH, 6, seed=0).encoder)


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
    torch.testing.assert_close(codec.decode(weight * one + (1 - weight) * two), blended, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("count", [2, 5, 23])
def test_a_sample_of_few_tokens_makes_codes_and_states_that_are_finite(count: int) -> None:
    codec = calibrated(12, count=count)
    codes = codec.encode(of_session(sample(50, seed=1)))
    assert codes.isfinite().all() and codec.decode(codes).isfinite().all()


def test_bfloat16_is_close_where_dimensions_are_many_deviations_from_zero() -> None:
    codec = calibrated(SIZE)
    rounded = of_session(sample(200, seed=1)).bfloat16()
    codes, exact = codec.encode(rounded), codec.encode(rounded.float())
    assert codes.dtype == torch.bfloat16
    # the mean is rounded too: the same for every token, and undone by decoding
    torch.testing.assert_close(codes.float() - codes.float().mean(0), exact - exact.mean(0), rtol=0.05, atol=0.1)
    again = codec.decode(codes)
    assert again.dtype == torch.bfloat16
    spread = sample(2000).std(0)[:, None]
    assert (((again.float() - rounded.float()) / spread).square().mean() ** 0.5) < 0.05


def test_decode_puts_layers_first_whatever_comes_before_the_code() -> None:
    codec = calibrated(5)
    codes = torch.randn(2, 4, 5)
    assert codec.decode(codes).shape == (LAYERS, 2, 4, WIDTH)
    torch.testing.assert_close(codec.decode(codes)[:, 1, 2], codec.decode(codes[1, 2]))
