"""An old turn loses to newer ones like it that answer as well, and to nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.memory.layout import Layout
from mlmf.memory.nodes import Node
from mlmf.memory.versions import RIVALS, outdated

INF = -torch.inf


def lowered(scores: torch.Tensor, rows: list[tuple[Node, ...]], angles: list[float] | None = None) -> torch.Tensor:
    """What is lowered where every node says the same, or points as ``angles`` say."""
    turned = torch.tensor(angles or [0.0] * scores.shape[1])
    embedding = torch.stack([turned.cos(), turned.sin()], -1)[None]
    return outdated(scores, embedding, Layout.of(rows, scores.shape[1], scores.device).newest_first)


def row(*keys: tuple[int, int]) -> tuple[Node, ...]:
    return tuple(Node(session, turn, f"D{session}:{turn}", "") for session, turn in keys)


def test_a_turn_is_outdated_by_newer_ones_that_answer_as_well() -> None:
    scores = torch.tensor([[5.0, 1.0, 4.0, INF], [2.0, 1.0, 9.0, INF]])
    nodes = [row((0, 0), (0, 1), (1, 0), (1, 1)), row((0, 0), (1, 0), (2, 0))]
    wanted = torch.tensor([[math.exp(-1), math.exp(-1), 0, 0], [1, 1, 0, 0]])
    torch.testing.assert_close(lowered(scores, nodes), wanted)


def test_the_less_alike_two_turns_are_the_less_the_newer_outdates_the_older() -> None:
    nodes = [row((0, 0), (1, 0))]
    by_cosine = {
        cosine: float(lowered(torch.tensor([[3.0, 3.0]]), nodes, [0.0, math.acos(cosine)])[0, 0])
        for cosine in (1.0, 0.75, 0.5, -1.0)
    }
    assert by_cosine == pytest.approx({1.0: 1.0, 0.75: 0.5, 0.5: 0.0, -1.0: 0.0}, abs=1e-5)


def test_what_is_not_among_the_best_outdates_nothing() -> None:
    scores = torch.tensor([[1.0, *[1.0] * RIVALS, 0.9]])
    nodes = [row(*((i, 0) for i in range(RIVALS + 2)))]
    assert lowered(scores, nodes)[0, -2] == 0  # its only newer one is the last but ranks below all
    assert lowered(scores[:, -3:], [nodes[0][-3:]])[0, -2] > 0.9


def test_age_alone_outdates_nothing() -> None:
    assert lowered(torch.tensor([[20.0, *[0.0] * 7]]), [row(*((i, 0) for i in range(8)))])[0, 0] < 1e-8


def test_date_lines_and_what_cannot_be_found_outdate_nothing() -> None:
    lost = lowered(torch.tensor([[INF, 3.0, INF, INF]]), [row((0, -1), (0, 0), (1, -1), (1, 0))])
    assert lost[0, 1] == 0


def test_what_was_said_last_is_newest_whatever_was_read_last() -> None:
    in_order = lowered(torch.tensor([[3.0, 2.0, 1.0]]), [row((0, 0), (1, 0), (2, 0))])
    backwards = lowered(torch.tensor([[1.0, 2.0, 3.0]]), [row((2, 0), (1, 0), (0, 0))])
    assert torch.equal(backwards.flip(-1), in_order) and in_order[0, 0] > 0 == in_order[0, 2]


@pytest.mark.parametrize("size", [0, 3])
def test_where_nothing_can_be_found_nothing_is_lowered(size: int) -> None:
    scores = torch.full((2, size), INF, requires_grad=True)
    lost = lowered(scores, [row(), row()])
    assert lost.shape == (2, size) and not lost.any()
    (scores.masked_fill(scores == INF, 0).sum() + lost.sum()).backward()
    assert torch.isfinite(scores.grad).all()


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.integers(0, 99))
def test_it_is_the_definition(values: list[int], seed: int) -> None:
    keys = [(i // 3, i % 3) for i in range(len(values))]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed)).tolist()
    keys = [keys[i] for i in order]
    expected = [
        max((math.exp(s - max(values)) for s, other in zip(values, keys, strict=True) if other > key), default=0.0)
        for key in keys
    ]
    lost = lowered(torch.tensor([values]).float(), [row(*keys)])
    torch.testing.assert_close(lost[0], torch.tensor(expected))
