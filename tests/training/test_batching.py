from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlmf.model import IGNORED, MLMFModel
from mlmf.training.batching import Collator, Counts, Untold, epoch_order, with_lines
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.types import Conversation

PAD = 0


@pytest.fixture
def make_collator(
    conversations: Sequence[Conversation], make_model: Callable[..., MLMFModel], tmp_path: Path
) -> Callable[..., Collator]:
    cache = FeatureMemory(FeatureCache(make_model(), tmp_path))

    def make(seed: int = 0, distractors: int = 3) -> Collator:
        collator = Collator(conversations, cache, seed, PAD)
        collator.distractors = distractors
        return collator

    return make


def example(**changes: Any) -> dict[str, Any]:
    plain = {
        "conversation": 0,
        "needed": [2],
        "pool": 5,
        "query": [7],
        "prompt": [5, 6],
        "target": [8, 2],
        "evidence": None,
    }
    return {**plain, "index": 0, "epoch": 0, **changes}


def chosen(collator: Collator, one: dict[str, Any]) -> list[int]:
    return [session.index for session in collator.sessions(one)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    pool=st.integers(1, 5), seed=st.integers(0, 50), index=st.integers(0, 50), distractors=st.integers(0, 6),
    data=st.data(),
)  # fmt: skip
def test_sessions_are_the_needed_ones_and_a_bounded_number_of_others_in_time_order(
    make_collator: Callable[..., Collator], pool: int, seed: int, index: int, distractors: int, data: st.DataObject
) -> None:
    needed = data.draw(st.lists(st.integers(0, pool - 1), unique=True))
    one = example(needed=needed, pool=pool, index=index)
    sessions = chosen(make_collator(seed, distractors), one)
    assert sessions == sorted(set(sessions))
    assert set(needed) <= set(sessions) <= set(range(pool))
    assert len(sessions) - len(needed) <= distractors + (not needed)
    assert sessions  # memory never starts empty
    assert sessions == chosen(make_collator(seed, distractors), one)


def test_seed_epoch_and_example_each_decide(make_collator: Callable[..., Collator]) -> None:
    def draws(**change: int) -> list[list[int]]:
        seed = change.pop("seed", 0)
        return [chosen(make_collator(seed), example(**{"index": i, **change})) for i in range(12)]

    assert draws() == draws()
    assert draws() != draws(seed=1) and draws() != draws(epoch=1)
    assert len({tuple(row) for row in draws()}) > 3
    lengths = {len(row) for row in draws()}
    assert lengths == {1, 2, 3, 4}


def test_batch_is_padded_on_the_left_and_learns_targets_only(make_collator: Callable[..., Collator]) -> None:
    batch = make_collator(distractors=0)(
        [example(), example(conversation=1, prompt=[5], target=[9, 9, 9, 2], needed=[0, 3])]
    )
    assert batch.input_ids.tolist() == [[PAD, 5, 6, 8, 2], [5, 9, 9, 9, 2]]
    assert batch.attention_mask.tolist() == [[0, 1, 1, 1, 1], [1] * 5]
    assert batch.labels.tolist() == [[IGNORED] * 3 + [8, 2], [IGNORED, 9, 9, 9, 2]]
    assert (batch.n_labels, batch.n_tokens) == (6, 9)
    assert batch.queries == [[7], [7]]


def test_counts_are_what_the_losses_are_means_over(make_collator: Callable[..., Collator]) -> None:
    rows = [example(evidence=[[2, 0], [2, 1]]), example(evidence=[]), example()]
    batch = make_collator(distractors=0)(rows)
    assert batch.evidence == [((2, 0), (2, 1)), (), None]
    assert batch.counts == Counts(examples=3, labels=6, evidence=2, tokens=12)


def test_rows_end_together_at_the_last_step(
    make_collator: Callable[..., Collator], conversations: Sequence[Conversation]
) -> None:
    collator = make_collator(distractors=0)
    batch = collator([example(needed=[4]), example(conversation=1, needed=[0, 2, 3])])
    listed = [[None if s is None else s.index for s in sessions] for sessions, _ in batch.steps]
    assert listed == [[None, 0], [None, 2], [4, 3]]
    last_sessions, last_features = batch.steps[-1]
    assert last_sessions == [conversations[0].sessions[4], conversations[1].sessions[3]]
    for session, features in zip(last_sessions, last_features, strict=True):
        assert session is not None and features is not None
        assert torch.equal(features.codes, collator.features.load(session).codes)
    assert batch.steps[0][1][0] is None


def test_untold_questions_lack_their_session_and_want_an_abstention(make_collator: Callable[..., Collator]) -> None:
    collator = make_collator()
    collator.untold = Untold(0.25, [9, 2])
    asked = [example(index=i, evidence=[[2, 0]], needed=[2]) for i in range(400)]
    untold = 0
    for one in asked:
        made = collator.untold(one, seed=0)
        assert made == collator.untold(one, seed=0)
        if made is not one:
            untold += 1
            assert made["target"] == [9, 2] and made["evidence"] == []
            assert chosen(collator, made) and 2 not in chosen(collator, made)
    assert 70 < untold < 130
    batch = collator(asked[:40])
    is_untold = [made is not one for one, made in ((one, collator.untold(one, 0)) for one in asked[:40])]
    assert [evidence == () for evidence in batch.evidence] == is_untold
    assert [9 in row.tolist() for row in batch.labels] == is_untold


def test_what_has_no_evidence_or_no_other_session_is_asked_as_it_is(make_collator: Callable[..., Collator]) -> None:
    untold = Untold(1.0, [9, 2])
    for one in (example(evidence=None), example(evidence=[]), example(evidence=[[0, 1]], needed=[0], pool=1)):
        assert untold(one, seed=0) is one


def test_whole_histories_are_every_session_of_the_pool(
    conversations: Sequence[Conversation], make_model: Callable[..., MLMFModel], tmp_path: Path
) -> None:
    collator = Collator(conversations, FeatureMemory(FeatureCache(make_model(), tmp_path)), 0, PAD, whole=True)
    assert chosen(collator, example(pool=4)) == [0, 1, 2, 3]


@settings(deadline=None)
@given(
    conversations=st.lists(st.integers(0, 3), max_size=30),
    seed=st.integers(0, 20),
    together=st.sampled_from([1, 2, 4]),
)
def test_an_epoch_is_a_permutation_in_which_examples_of_a_conversation_stay_together(
    conversations: list[int], seed: int, together: int
) -> None:
    order = epoch_order(conversations, seed, together)
    assert sorted(order) == list(range(len(conversations)))
    assert order == epoch_order(conversations, seed, together)
    changes = sum(conversations[a] != conversations[b] for a, b in pairwise(order))
    if together > 1:
        parts = sum(-(-conversations.count(c) // together) for c in set(conversations))
        assert changes <= max(0, parts - 1)


def test_shown_lines_stand_before_the_prompts_and_rows_still_end_together(
    make_collator: Callable[..., Collator],
) -> None:
    batch = make_collator()([example(), example(prompt=[5, 6, 7, 9], index=1)])
    ids, mask, labels = with_lines(batch, [[11, 12, 13, 14, 15], [11]], PAD)
    assert ids.tolist() == [[11, 12, 13, 14, 15, 5, 6, 8, 2], [PAD, PAD, 11, 5, 6, 7, 9, 8, 2]]
    assert torch.equal(mask, (ids != PAD).long())
    assert labels.tolist() == [[IGNORED] * 7 + [8, 2]] * 2
    without = with_lines(batch, [[], []], PAD)
    assert all(map(torch.equal, without, (batch.input_ids, batch.attention_mask, batch.labels)))
