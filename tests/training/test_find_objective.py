"""The first stage: shared memories change no loss, and only what finds is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from mlmf import checkpoint
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.memory.losses import evidence_loss
from mlmf.model import MLMFModel
from mlmf.training.batching import Batch, Collator
from mlmf.training.examples import build_examples, tokenise
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.training.find_objective import FindObjective
from mlmf.training.run import run_training
from mlmf.types import Conversation


@pytest.fixture
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    return make_model(recall_nodes=2)


def batch_of(model: MLMFModel, conversations: Sequence[Conversation], rows: Sequence[int], cache: Path) -> Batch:
    data, _ = tokenise(build_examples(conversations, ["answer"]), model.tokenizer, cache,
                       max_prompt_tokens=64, max_target_tokens=16)  # fmt: skip
    collator = Collator(
        conversations, FeatureMemory(FeatureCache(model, cache)), 0, model.tokenizer.pad_token_id, whole=True
    )
    return collator([{**data[i], "index": i, "epoch": 0} for i in rows])


def test_loss_is_the_mean_of_each_question_on_its_own_whole_history(
    model: MLMFModel, conversations: Sequence[Conversation], tmp_path: Path
) -> None:
    rows = [0, 6, 2, 4, 9]  # questions of both conversations, among them two about nothing
    batch = batch_of(model, conversations, rows, tmp_path)
    expected = []
    for row, evidence in zip(rows, batch.evidence, strict=True):
        conversation = conversations[row // 5]
        state = model.init_state()
        for session in conversation.sessions:
            state = model.remember([session], state)
        query = model.query_keys([model.tokenizer(conversation.questions[row % 5].text)["input_ids"]])
        expected.append(evidence_loss(model.memory.scorer(query, state), state, [evidence]).item())
    losses = FindObjective(model)(batch, 0.0, batch.counts)
    assert losses.total.item() == pytest.approx(sum(expected) / 5, rel=1e-4)
    assert losses.evi == pytest.approx(losses.total.item()) and losses.sought == 3 and 0 <= losses.found <= 3


def test_a_run_trains_what_finds_and_nothing_else(
    make_config: Callable[..., TrainConfig], data_file: Path, tmp_path: Path
) -> None:
    tiny = MLMFConfig(base_model="tiny-random", lora=LoraSettings(r=4), recall_nodes=2)
    config = make_config(data_file=str(data_file), model=tiny, max_steps=3, generate=False)
    trained = MLMFModel.from_pretrained(run_training(config))
    fresh = MLMFModel.from_base("tiny-random", tiny)
    before = dict(fresh.named_parameters())
    moved = {name for name, p in trained.named_parameters() if not torch.equal(p, before[name])}
    assert {"memory.key_projection.projection", "memory.scorer.lexical", "memory.scorer.doubt"} <= moved
    # salience is part of the score and reads the episodic layer
    finds = ("memory.key_projection.", "memory.scorer.", "memory.semantic.", "memory.episodic.")
    assert all(name.startswith(finds) for name in moved), sorted(moved)
    assert checkpoint.read_metadata(tmp_path / "run" / "final")["training"]["generate"] is False


def test_replies_and_memories_without_nodes_have_nothing_to_find(make_config: Callable[..., TrainConfig]) -> None:
    with pytest.raises(UserError, match="generate is false and objectives has reply"):
        make_config(generate=False, objectives=["reply"])
    with pytest.raises(UserError, match="nothing to find"):
        make_config(generate=False, model=MLMFConfig(semantic=False))
