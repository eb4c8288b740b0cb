from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.memory.codec import StateCodec
from mlmf.memory.find import FindScores
from mlmf.memory.state import MemoryState, Node
from mlmf.recall import Recall, as_bank, as_lines, choose, marked

# (session, turn, tokens); row 1 is shorter, row 2 remembers nothing
ROWS = [[(0, -1, 1), (0, 0, 2), (0, 1, 3), (1, -1, 2), (1, 0, 2)], [(0, -1, 1), (0, 0, 1)], []]


def conversation(row: list[tuple[int, int, int]]) -> MemoryState:
    owner = torch.tensor([i for i, (_, _, n) in enumerate(row) for _ in range(n)], dtype=torch.long)
    m, n = len(owner), len(row)
    return MemoryState(
        working=torch.randn(1, 2, 8), working_mask=torch.full((1, 2), bool(row)),
        episodic=torch.randn(1, 3, 8), episodic_mask=torch.full((1, 3), bool(row)),
        values=torch.randn(1, m, 8), keys=torch.randn(1, m, 4), tokens=torch.zeros(1, m).long(), owner=owner[None],
        embedding=torch.randn(1, n, 4), pooled=torch.randn(1, n, 4), salience=torch.zeros(1, n),
        nodes=(tuple(Node(s, t, "" if t < 0 else f"D{s}:{t}", f"[{s}] line {t}") for s, t, _ in row),),
        sessions=(len({s for s, _, _ in row}),), latest=(max((s for s, _, _ in row), default=-1),),
    )  # fmt: skip


CODEC = StateCodec(layers=2, width=4, code_dim=0, seed=0)


def whole(codes: torch.Tensor) -> torch.Tensor:
    """The two states of 4 numbers that a slot of ``(B, M, 8)`` holds, ``(B, 2, M, 4)``."""
    return codes.unflatten(-1, (2, 4)).transpose(-2, -3)


@pytest.fixture
def state() -> MemoryState:
    torch.manual_seed(0)
    return MemoryState.cat([conversation(row) for row in ROWS])


INF = -torch.inf
SCORES = torch.tensor([[INF, 1.0, 3.0, INF, 2.0], [INF, 0.5, INF, INF, INF], [INF] * 5])


def test_the_best_nodes_come_first_and_unfindable_ones_never(state: MemoryState) -> None:
    recalls = choose(SCORES, state, 2)
    assert [recall.chosen for recall in recalls] == [(2, 4), (1,), ()]
    assert [recall.turn_ids for recall in recalls] == [("D0:1", "D1:0"), ("D0:0",), ()]
    assert recalls[0].lines == ("[0] line 1", "[1] line 0")


def test_one_conversation_serves_every_query(state: MemoryState) -> None:
    scores = torch.tensor([[INF, 1.0, 3.0, INF, 2.0], [INF, 9.0, 3.0, INF, 2.0]])
    assert [r.turn_ids for r in choose(scores, state.select([0]), 1)] == [("D0:1",), ("D0:0",)]


@settings(deadline=None)
@given(values=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=40), count=st.integers(1, 50))
def test_ties_go_to_the_earlier_node(values: list[float], count: int) -> None:
    listed = conversation([(i, 0, 1) for i in range(len(values))])
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert choose(torch.tensor([values]), listed, count)[0].chosen == tuple(expected)


def test_bank_lays_out_working_episodic_and_the_chosen_nodes_with_their_date_lines(state: MemoryState) -> None:
    recalls = choose(SCORES, state, 1)  # D0:1 in row 0, D0:0 in row 1
    bank, _ = as_bank(state, recalls, FindScores(SCORES, None), torch.tensor(0.5), None, CODEC)
    assert bank.sizes == (2, 3, 4) and bank.states.shape == (3, 2, 9, 4) and bank.mask.shape == (3, 9)
    assert torch.equal(bank.states[:, :, :2], whole(state.working))
    assert torch.equal(bank.states[:, :, 2:5], whole(state.episodic))
    # row 0: one token of the date line of session 0, three of turn 1; not a token of session 1
    assert torch.equal(bank.states[0, :, 5:], whole(state.values[0][[0, 3, 4, 5]]))
    assert torch.equal(bank.states[1, :, 5:7], whole(state.values[1][[0, 1]]))
    assert bank.mask.tolist() == [[True] * 9, [True] * 7 + [False] * 2, [False] * 9]
    assert bank.present.tolist() == [[True] * 3, [True] * 3, [False] * 3]


def test_bias_is_the_log_share_of_a_node_times_the_find_weight(state: MemoryState) -> None:
    one = state.select([0])
    bank, _ = as_bank(one, choose(SCORES[:1], one, 2), FindScores(SCORES[:1], None), torch.tensor(0.5), None, CODEC)
    share = torch.tensor([3.0, 2.0]).log_softmax(0) * 0.5
    # slots in order of time: date line and turn 1 of session 0, date line and turn of session 1
    expected = torch.tensor([0.0] * 5 + [share[0]] * 4 + [share[1]] * 4)
    torch.testing.assert_close(bank.bias[0], expected)


def test_a_date_line_takes_the_share_of_its_best_turn(state: MemoryState) -> None:
    one = state.select([0])
    scores = torch.tensor([[INF, 1.0, 3.0, INF, 2.0]])
    bank, _ = as_bank(one, choose(scores, one, 3), FindScores(scores, None), torch.tensor(1.0), None, CODEC)
    share = torch.tensor([3.0, 2.0, 1.0]).log_softmax(0)
    best, second, worst = share.tolist()
    torch.testing.assert_close(bank.bias[0, 5:], torch.tensor([best, worst, worst] + [best] * 3 + [second] * 4))


def test_gradient_flows_from_the_bias_to_scores_and_find_weight(state: MemoryState) -> None:
    one = state.select([0])
    scores = SCORES[:1].clone().requires_grad_()
    weight = torch.tensor(0.5, requires_grad=True)
    as_bank(one, choose(scores, one, 2), FindScores(scores, None), weight, None, CODEC)[0].bias[0, 5].backward()
    assert weight.grad is not None and weight.grad < 0
    assert scores.grad is not None
    assert scores.grad[0].nonzero().flatten().tolist() == [2, 4]


def test_nothing_is_one_more_slot_that_shares_with_the_chosen_nodes(state: MemoryState) -> None:
    slot = torch.randn(8)
    scores = FindScores(SCORES, torch.tensor([2.5, 0.0, 9.0]))
    recalls = choose(SCORES, state, 2)
    bank, _ = as_bank(state, recalls, scores, torch.tensor(0.5), slot, CODEC)
    plain, _ = as_bank(state, recalls, FindScores(SCORES, None), torch.tensor(0.5), None, CODEC)
    assert bank.sizes == (2, 3, 9)
    assert bank.mask.sum(1).tolist() == [14, 8, 0]  # row 2 holds nothing, not even this slot
    assert torch.equal(bank.states[0, :, :13], plain.states[0])
    assert torch.equal(bank.states[0, :, 13], slot.view(2, 4)) and torch.equal(bank.states[1, :, 13], slot.view(2, 4))
    best, second, nothing = (torch.tensor([3.0, 2.0, 2.5]).log_softmax(0) * 0.5).tolist()
    torch.testing.assert_close(bank.bias[0, 5:], torch.tensor([best] * 4 + [second] * 4 + [nothing]))


def test_one_conversation_makes_a_bank_for_every_query(state: MemoryState) -> None:
    one, scores = state.select([0]), torch.tensor([[INF, 1.0, 3.0, INF, 2.0], [INF, 9.0, 3.0, INF, 2.0]])
    bank, _ = as_bank(one, choose(scores, one, 1), FindScores(scores, None), torch.tensor(0.0), None, CODEC)
    repeated = one.select([0, 0])
    expected, _ = as_bank(
        repeated, choose(scores, repeated, 1), FindScores(scores, None), torch.tensor(0.0), None, CODEC
    )
    assert torch.equal(bank.states, expected.states) and torch.equal(bank.mask, expected.mask)
    assert not bank.bias.any()


def test_what_is_read_of_a_turn_is_marked_by_whose_words_it_is(state: MemoryState) -> None:
    recalls = choose(SCORES, state, 2)  # row 0: turns D0:1 and D1:0, their date lines; row 1: D0:0
    bank, owner = as_bank(state, recalls, FindScores(SCORES, None), torch.tensor(0.5), torch.randn(8), CODEC)
    marks = torch.randn(2, 2, 4, requires_grad=True)
    whose = torch.tensor([[0, 0, 1, 0, 2], [0, 1, 0, 0, 0], [0] * 5])
    found = marked(bank, owner, whose, marks)
    own, others = marks[:, 0], marks[:, 1]
    added = (found.states - bank.states).transpose(1, 2)  # (B, M, L, D)
    expected = torch.zeros_like(added)
    expected[0, 6:9] = own  # after working, episodic and the date line of session 0
    expected[0, 11:13] = others
    expected[1, 6] = own
    torch.testing.assert_close(added, expected)
    assert found.bias is bank.bias and found.mask is bank.mask
    found.states.sum().backward()
    assert marks.grad is not None and marks.grad[:, 0].unique().tolist() == [4.0]


NODES = (
    Node(0, -1, "", "[day 0]"),
    Node(0, 0, "a", "short one"),
    Node(1, 0, "b", "the longer", superseded_by=(2, 1)),
    Node(2, 0, "c", "late line"),
    Node(2, 1, "d", "the longest of all"),
    Node(3, 0, "e", "short one"),
)


def shown(chosen: tuple[int, ...], budget: int = 1000, question: str = "Where?", neighbours: int = 0) -> list[str]:
    ranked = Recall(chosen, tuple(NODES[i] for i in chosen))
    return list(as_lines(ranked, NODES, question, budget, len, neighbours).turn_ids)


@pytest.mark.parametrize(
    ("budget", "expected"), [(0, []), (9, []), (10, ["a"]), (19, ["d"]), (29, ["a", "d"]), (39, ["a", "c", "d"])]
)
def test_lines_fit_the_budget_and_return_to_the_order_of_time(budget: int, expected: list[str]) -> None:
    assert shown((4, 1, 3), budget) == expected


def test_the_same_line_is_shown_once_for_the_better_hit() -> None:
    assert shown((5, 1)) == ["e"] and shown((1, 5)) == ["a"]


def test_what_is_superseded_is_shown_only_to_a_question_about_the_past() -> None:
    assert shown((4,)) == ["d"]
    assert shown((4,), question="Where was it before?") == ["b", "d"]


def test_neighbours_come_after_every_hit_and_never_from_another_session() -> None:
    assert shown((4,), neighbours=2) == ["c", "d"]
    # 10 tokens for c as a neighbour are left only where they are not needed for the second hit
    assert shown((4, 1), budget=29, neighbours=1) == ["a", "d"]


@settings(deadline=None)
@given(
    order=st.permutations(range(1, len(NODES))),
    budget=st.integers(0, 80),
    neighbours=st.integers(0, 2),
    question=st.sampled_from(["Where?", "Where before?"]),
)
def test_lines_never_exceed_the_budget_repeat_or_leave_the_order_of_time(
    order: list[int], budget: int, neighbours: int, question: str
) -> None:
    ranked = Recall(tuple(order), tuple(NODES[i] for i in order))
    lines = as_lines(ranked, NODES, question, budget, len, neighbours)
    assert sum(len(line) + 1 for line in lines.lines) <= budget
    assert len(set(lines.lines)) == len(lines.lines)
    assert [node.key for node in lines.nodes] == sorted(node.key for node in lines.nodes)
