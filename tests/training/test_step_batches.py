"""Which examples a step takes: a function of its number alone, every example once an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from accelerate import Accelerator

from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.paths import cache_dir
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.step_batches import StepBatches
from mlmf.types import Conversation


def test_batches_are_a_function_of_the_step(
    make_config: Callable[..., TrainConfig],
    make_model: Callable[..., MLMFModel],
    conversations: Sequence[Conversation],
) -> None:
    config, model = make_config(), make_model()
    features, accelerator = FeatureCache(model, cache_dir()), Accelerator(cpu=True)
    one, other = (StepBatches(config, conversations, model, features, accelerator) for _ in range(2))
    assert (one.per_epoch, one.total) == (4, 6)
    for step in (0, 4, 2):  # 4 steps an epoch of 10 examples, the last of one example
        a, b = one(step)[0], other(step)[0]
        assert torch.equal(a.input_ids, b.input_ids) and a.queries == b.queries
        assert [s for s, _ in a.steps] == [s for s, _ in b.steps]
    seen = [query for step in range(4) for batch in one(step) for query in map(tuple, batch.queries)]
    texts = [tuple(one.examples[i]["query"]) for i in range(10)]
    assert sorted(seen) == sorted(texts)  # an epoch asks everything once


def test_a_share_of_the_steps_shows_lines_of_any_budget_from_a_fourth_on(
    make_config: Callable[..., TrainConfig],
    make_model: Callable[..., MLMFModel],
    conversations: Sequence[Conversation],
) -> None:
    model = make_model()
    features, accelerator = FeatureCache(model, cache_dir()), Accelerator(cpu=True)

    def budgets(**settings: float) -> list[int]:
        made = StepBatches(
            make_config(max_reply_context=32, max_steps=80, **settings), conversations, model, features, accelerator
        )
        return [made(step)[0].shown_tokens for step in range(80)]

    assert set(budgets()) == {0}
    always, often = budgets(shown_share=1.0, shown_tokens=40), budgets(shown_share=0.5, shown_tokens=40)
    assert 10 <= min(always) < max(always) <= 40
    assert 20 < often.count(0) < 60 and often == budgets(shown_share=0.5, shown_tokens=40)
    with pytest.raises(UserError, match=r"shown_tokens 9999.*lower one"):
        budgets(shown_share=0.5, shown_tokens=9999)
