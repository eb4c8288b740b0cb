"""A word is as rare as it was in the training data, until a memory holds enough to tell."""

from __future__ import annotations

import math

import pytest
import torch

from mlmf.memory.rarity import Rarity

COMMON, RARE, STRANGE = 3, 5, 99


def counted(prior: int = 1000) -> Rarity:
    rarity = Rarity(vocab=8, prior=prior)
    rarity.count([[COMMON, COMMON], [COMMON, RARE], [COMMON], [4]] * 50)
    return rarity


def weigh(rarity: Rarity, holders: int, places: int, token: int) -> float:
    present = torch.zeros(1, 1, places)
    present[..., :holders] = 1
    weights = rarity(present, torch.tensor([token]), torch.tensor([places]))
    assert not weights[..., holders:].any() and len(weights[..., :holders].unique()) == 1
    return float(weights[0, 0, 0])


def test_it_is_the_definition() -> None:
    assert weigh(counted(), 2, 10, RARE) == pytest.approx(math.log((10 + 200 + 1) / (2 + 200 * 0.25 + 0.5)))
    # what was counted weighs no more than the prior
    assert weigh(counted(20), 2, 10, COMMON) == pytest.approx(math.log((10 + 20 + 1) / (2 + 20 * 0.75 + 0.5)))


def test_nothing_counted_leaves_the_memory_alone() -> None:
    assert weigh(Rarity(0, 1000), 2, 10, COMMON) == pytest.approx(math.log(11 / 2.5))
    assert weigh(Rarity(0, 1000), 10, 10, COMMON) == pytest.approx(math.log(11 / 10.5), rel=1e-4)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_a_word_counts_the_same_in_a_small_and_a_large_memory(share: float) -> None:
    token = {0.25: RARE, 0.75: COMMON}[share]
    small, large = (weigh(counted(), int(share * places), places, token) for places in (8, 400))
    alone = [weigh(Rarity(0, 1000), int(share * places), places, token) for places in (8, 400)]
    assert abs(large - small) < 0.1 * abs(alone[1] - alone[0]) + 0.02


def test_a_word_never_seen_before_is_rarer_than_any() -> None:
    rarity = counted()
    assert weigh(rarity, 1, 3, STRANGE) > weigh(rarity, 1, 3, RARE) > weigh(rarity, 1, 3, COMMON) > 0
    rarity.count([[RARE]])  # counting anew forgets what was counted
    assert float(rarity.held[COMMON]) == 0 and float(rarity.counted) == 1
