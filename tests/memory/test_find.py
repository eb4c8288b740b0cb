from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from mlmf.memory import find
from mlmf.memory.find import AROUND, NodeScorer
from mlmf.memory.keys import KeyProjection, QueryKeys
from mlmf.memory.state import MemoryState, Node

LONG = [(0, -1, 1), (0, 0, 3), (0, 1, 2), (1, -1, 1), (1, 0, 4), (2, -1, 1), (2, 0, 2), (2, 1, 1)]
SHORT = [(0, -1, 2), (0, 0, 2), (0, 1, 1)]
TEXT = "What did Ann do in February 2023?"


@pytest.fixture
def told(toy_state: Callable[..., MemoryState]) -> Callable[..., MemoryState]:
    """``toy_state`` of Ann and Ben, one session a month; the first turn of each session is about a boat."""

    def make(listed: Sequence[Sequence[tuple[int, int, int]]], **settings: int) -> MemoryState:
        state = toy_state(listed, **settings)
        rows = (
            tuple(
                replace(
                    node, speaker="" if node.is_session else ("Ann", "Ben")[node.turn % 2],
                    date=f"2023-0{node.session + 1}-05", entities=("boat",) if node.turn == 0 else (),
                )
                for node in row
            )
            for row in state.nodes
        )  # fmt: skip
        return replace(state, nodes=tuple(rows))

    return make


def query(lengths: list[int], seed: int = 9) -> QueryKeys:
    generator = torch.Generator().manual_seed(seed)
    b, t = len(lengths), max(lengths)
    mask = torch.arange(t)[None] < torch.tensor(lengths)[:, None]
    keys = F.normalize(torch.randn(b, t, 8, generator=generator), dim=-1)
    weights = (0.5 + torch.rand(b, t, generator=generator)) * mask
    return QueryKeys(keys, torch.randint(3, 12, (b, t), generator=generator), mask, weights, (TEXT,) * b)


def rows(q: QueryKeys, index: int) -> QueryKeys:
    part = slice(index, index + 1)
    return QueryKeys(q.keys[part], q.tokens[part], q.mask[part], q.weights[part], q.texts[part])


TURNS_BEFORE = [[3, 4, 5], [5], [7, 9, 40]] * 3
SESSIONS_BEFORE = [[3, 4, 5, 7], [9, 40, 41]] * 2
"""Tokens of what was counted before anything was told."""


def scorer() -> NodeScorer:
    """A scorer whose every term counts."""
    made = NodeScorer(vocab=64)
    made.of_turns.count(TURNS_BEFORE)
    made.of_sessions.count(SESSIONS_BEFORE)
    torch.nn.init.constant_(made.neighbourhood, 0.3)
    torch.nn.init.constant_(made.versions, 1.7)
    for i, cue in enumerate((made.late, made.speaker, made.month, made.before, made.after, made.ties)):
        torch.nn.init.constant_(cue, 0.9 - 0.1 * i)
    return made.requires_grad_(False)


def loop_scores(model: NodeScorer, q: QueryKeys, state: MemoryState) -> list[float]:
    """Scores of one query and one conversation, straight from the definition."""
    nodes, owner = state.nodes[0], state.owner[0].tolist()
    asked = [(q.weights[0, t] * q.keys[0, t], int(q.tokens[0, t])) for t in range(q.keys.shape[1]) if q.mask[0, t]]
    sessions = list(dict.fromkeys(node.session for node in nodes))
    members = {i: [m for m, o in enumerate(owner) if o == i] for i in range(len(nodes))}
    together = {s: [m for i, node in enumerate(nodes) if node.session == s for m in members[i]] for s in sessions}

    def late_interaction(slots: list[int]) -> float:
        return sum(max([0.0] + [float(key @ state.keys[0, m]) for m in slots]) for key, _ in asked)

    def rarity(groups: dict[int, list[int]], group: int, before: list[list[int]]) -> float:
        total = 0.0
        for _, token in asked:
            holders = [g for g, slots in groups.items() if token in {int(state.tokens[0, m]) for m in slots}]
            if group in holders:
                total += max(
                    0.0,
                    math.log(
                        (len(groups) + len(before) + 1) / (len(holders) + sum(token in one for one in before) + 0.5)
                    ),
                )
        return total

    pooled = F.normalize(sum(key for key, _ in asked), dim=-1)
    scores = []
    for i, node in enumerate(nodes):
        beside = [j for j, other in enumerate(nodes) if other.session == node.session and not other.is_session]
        near = [j for j in beside if not node.is_session and abs(beside.index(j) - beside.index(i)) <= AROUND] or [i]
        around = float(model.late) * late_interaction([m for j in near for m in members[j]])
        around += float(model.session_lexical) * rarity(together, node.session, SESSIONS_BEFORE)
        score = float(model.late) * late_interaction(members[i])
        score += float(model.lexical) * rarity(members, i, TURNS_BEFORE)
        score += float(model.context) * around
        score += float(model.neighbourhood) * float(state.embedding[0, i] @ pooled) + float(state.salience[0, i])
        score += float(model.speaker) * (node.speaker == "Ann") + float(model.month) * (node.date == "2023-02-05")
        scores.append(score)
    scores = [score + gain(model, nodes, scores, i) for i, score in enumerate(scores)]
    hidden = [node.is_session or node.superseded for node in nodes]
    scores = [-math.inf if gone else score for gone, score in zip(hidden, scores, strict=True)]
    best, embedding = max(scores), state.embedding[0]
    newer = [[j for j, other in enumerate(nodes) if other.key > node.key] for node in nodes]
    alike = (2 * embedding @ embedding.T - 1).clamp_min(0).tolist()
    lost = [
        max((math.exp(scores[j] - best) * alike[i][j] for j in after), default=0.0) for i, after in enumerate(newer)
    ]
    return [score - float(model.versions) * outdated for score, outdated in zip(scores, lost, strict=True)]


def gain(model: NodeScorer, nodes: Sequence[Node], scores: list[float], i: int) -> float:
    """What the turns beside a node, and those that mention what it mentions, add to its score."""
    place = {node.key: j for j, node in enumerate(nodes) if not node.is_session}
    if nodes[i].is_session:
        return 0.0
    session, turn = nodes[i].key
    before, after = place.get((session, turn - 1), i), place.get((session, turn + 1), i)
    tied = [j for j, node in enumerate(nodes) if set(node.entities) & set(nodes[i].entities)] or [i]
    total = float(model.before) * (scores[before] - scores[i]) + float(model.after) * (scores[after] - scores[i])
    return total + float(model.ties) * (max(scores[j] for j in tied) - scores[i])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_score_is_the_double_loop_of_late_interaction(told: Callable[..., MemoryState], seed: int) -> None:
    # so many turns that those at the ends of the first session are not said around each other
    turns = [*LONG[:3], *((0, i, 1 + i % 2) for i in range(2, 4 + AROUND)), *LONG[3:]]
    state, asked = told([turns], seed=seed), query([5], seed=seed)
    scores = scorer()(asked, state).nodes[0].tolist()
    assert scores == pytest.approx(loop_scores(scorer(), asked, state), rel=1e-4, abs=1e-4)


def test_a_part_that_speaks_for_a_turn_never_counts_against_it(told: Callable[..., MemoryState]) -> None:
    state, asked = told([LONG]), query([5])
    model, names = scorer(), ("lexical", "session_lexical", "speaker", "month", "before", "after", "ties")
    for name in names:
        torch.nn.init.constant_(getattr(model, name), -0.5)
    found = model.requires_grad_()(asked, state).nodes[0, 1:3]
    found[0].sub(found[1]).backward()
    without = scorer()
    for name in names:
        torch.nn.init.constant_(getattr(without, name), 0.0)
    torch.testing.assert_close(found.detach(), without(asked, state).nodes[0, 1:3])
    # and can come back
    assert model.lexical.grad and model.speaker.grad and model.after.grad


def test_padding_of_a_query_does_not_count(told: Callable[..., MemoryState]) -> None:
    state, asked = told([LONG]), query([3, 6])
    short = QueryKeys(asked.keys[:1, :3], asked.tokens[:1, :3], asked.mask[:1, :3], asked.weights[:1, :3], (TEXT,))
    padded, alone = scorer()(asked, state), scorer()(short, state)
    torch.testing.assert_close(padded.nodes[0], alone.nodes[0])
    torch.testing.assert_close(padded.nothing[0], alone.nothing[0])


def test_date_lines_superseded_turns_and_padding_cannot_be_found(told: Callable[..., MemoryState]) -> None:
    state = told([LONG, SHORT])
    nodes = list(state.nodes[0])
    nodes[1] = replace(nodes[1], superseded_by=(2, 0))
    state = replace(state, nodes=(tuple(nodes), state.nodes[1]))
    scores = scorer()(query([4, 4]), state).nodes
    assert torch.isinf(scores[0]).nonzero().flatten().tolist() == [0, 1, 3, 5]
    assert torch.isinf(scores[1]).nonzero().flatten().tolist() == [0, 3, 4, 5, 6, 7]


def test_one_conversation_answers_many_queries_as_if_it_were_repeated(told: Callable[..., MemoryState]) -> None:
    state, asked = told([LONG]), query([4, 2, 5])
    once, repeated = scorer()(asked, state), scorer()(asked, state.select([0, 0, 0]))
    assert torch.equal(once.nodes, repeated.nodes) and torch.equal(once.nothing, repeated.nothing)


def test_scores_of_a_conversation_do_not_depend_on_who_shares_its_batch(told: Callable[..., MemoryState]) -> None:
    state, asked = told([LONG, SHORT]), query([4, 5])
    together = scorer()(asked, state).nodes
    for row, listed in enumerate((LONG, SHORT)):
        m = sum(n for _, _, n in listed)
        one = state.select([row])
        alone = replace(
            one, keys=one.keys[:, :m], tokens=one.tokens[:, :m], owner=one.owner[:, :m],
            embedding=one.embedding[:, : len(listed)], salience=one.salience[:, : len(listed)],
        )  # fmt: skip
        torch.testing.assert_close(together[row, : len(listed)], scorer()(rows(asked, row), alone).nodes[0])


def test_a_rare_shared_token_lifts_a_turn_more_than_a_common_one(told: Callable[..., MemoryState]) -> None:
    state = told([[(i, 0, 2) for i in range(6)]])
    tokens = torch.tensor([[50, 60] + [50, 51] * 5])  # every turn holds 50, the first alone 60
    state = replace(state, tokens=tokens, keys=torch.zeros_like(state.keys), salience=torch.zeros(1, 6),
                    embedding=torch.zeros_like(state.embedding))  # fmt: skip
    blank = torch.zeros(1, 1, 8)
    plain = NodeScorer(versions=False).requires_grad_(False)

    def ask(token: int) -> torch.Tensor:
        asked = QueryKeys(blank, torch.tensor([[token]]), torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1), ("",))
        return plain(asked, state).nodes[0]

    assert ask(60)[0] > ask(50)[0] >= 0
    assert ask(60).argmax() == 0 and not ask(60)[1:].any()


def test_gradient_reaches_every_weight_of_the_score(told: Callable[..., MemoryState]) -> None:
    model = NodeScorer()
    scores = model(query([5]), told([LONG]))
    rivals = torch.cat([scores.nodes[torch.isfinite(scores.nodes)], scores.nothing])
    rivals.softmax(-1)[0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad != 0, name


def test_nothing_must_be_exceeded_by_more_where_a_query_has_more_tokens(
    told: Callable[..., MemoryState],
) -> None:
    model = scorer()
    torch.nn.init.constant_(model.doubt, -1.5)
    torch.nn.init.constant_(model.doubt_per_token, 0.4)
    asked = query([3, 6])
    expected = -1.5 + 0.4 * asked.weights.sum(-1)
    torch.testing.assert_close(model(asked, told([LONG])).nothing, expected)


def test_parts_that_are_off_have_no_weights_and_no_score(told: Callable[..., MemoryState]) -> None:
    without = NodeScorer(versions=False, nothing=False).requires_grad_(False)
    assert NodeScorer().state_dict().keys() - without.state_dict().keys() == {"versions", "doubt", "doubt_per_token"}
    state, asked = told([LONG]), query([5])
    lowered = NodeScorer().requires_grad_(False)(asked, state).nodes
    scores = without(asked, state)
    assert scores.nothing is None
    assert (scores.nodes >= lowered).all() and not torch.equal(scores.nodes, lowered)


def test_scores_under_autocast_are_those_without_it(told: Callable[..., MemoryState]) -> None:
    state, asked, projection = told([LONG]), query([5]), KeyProjection(12, 8, seed=0)
    states = torch.randn(1, 5, 12)
    plain, keys = scorer()(asked, state), projection.query(states, asked.tokens, asked.mask, asked.texts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, mixed_keys = scorer()(asked, state), projection.query(states, asked.tokens, asked.mask, asked.texts)
    assert torch.equal(mixed.nodes, plain.nodes) and torch.equal(mixed.nothing, plain.nothing)
    assert torch.equal(mixed_keys.keys, keys.keys) and torch.equal(mixed_keys.weights, keys.weights)


def test_keys_are_standardised_projected_and_of_unit_length() -> None:
    projection = KeyProjection(12, 5, seed=3)
    sample = torch.randn(200, 12) * torch.linspace(0.1, 30, 12) + 4
    projection.calibrate(sample)
    keys = projection(sample)
    expected = (sample - sample.mean(0)) / sample.std(0) @ projection.projection.detach()
    torch.testing.assert_close(keys.detach(), expected / expected.norm(dim=-1, keepdim=True))
    basis = projection.projection.detach()
    torch.testing.assert_close(basis.T @ basis, torch.eye(5), atol=1e-5, rtol=0)
    assert torch.equal(KeyProjection(12, 5, seed=3).projection, projection.projection)
    assert KeyProjection(4, 9, seed=0).projection.shape == (4, 4)


def test_a_constant_dimension_does_not_break_the_keys() -> None:
    projection = KeyProjection(4, 4, seed=0)
    sample = torch.randn(20, 4)
    sample[:, 2] = 7.0
    projection.calibrate(sample)
    assert torch.isfinite(projection(sample)).all()


def test_every_token_of_a_query_counts_one_until_something_is_learned() -> None:
    projection = KeyProjection(12, 5, seed=3)
    states, tokens = torch.randn(2, 4, 12), torch.zeros(2, 4).long()
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    asked = projection.query(states, tokens, mask, ("", ""))
    assert torch.equal(asked.weights.detach(), mask.float()) and torch.equal(asked.keys, projection(states))
    torch.nn.init.normal_(projection.token.weight)
    weights = projection.query(states, tokens, mask, ("", "")).weights.detach()
    assert (weights[mask] > 0).all() and len(weights[mask].unique()) == 6 and not weights[~mask].any()


@pytest.mark.parametrize("seed", range(4))
def test_a_shortlist_scores_its_nodes_as_the_whole_search_does(
    told: Callable[..., MemoryState], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    listed = [(s, t, 3 if t >= 0 else 1) for s in range(9) for t in range(-1, 4)]
    state, asked, model = told([listed, LONG], seed=seed), query([5, 3], seed=seed), scorer()
    for reaching in (model.ties, model.versions):  # these compare with nodes that may be out of the shortlist
        torch.nn.init.zeros_(reaching)
    whole = model(asked, state).nodes
    monkeypatch.setattr(find, "SHORTLIST_FROM", 20)
    monkeypatch.setattr(find, "SHORTLIST", 20)
    scores = model(asked, state).nodes
    for row in range(2):
        scored = torch.isfinite(scores[row])
        n_sessions = len({state.nodes[row][i].session for i in scored.nonzero().flatten().tolist()})
        assert n_sessions == (4, 3)[row]  # five nodes a session: four sessions are 20; the other row has only three
        torch.testing.assert_close(scores[row][scored], whole[row][scored])
