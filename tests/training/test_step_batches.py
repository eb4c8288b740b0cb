"""Which examples a step takes: a function of its number alone, every example once an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from accelerate import Accelerator

from mlmf.config.training import TrainConfig
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
