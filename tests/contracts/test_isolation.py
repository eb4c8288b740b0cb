"""Contract 3 under stress: no conversation reaches another through the model, whatever runs at the same time."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from mlmf.memory.state import MemoryState
from mlmf.model import IGNORED, MLMFModel

ASKED = ["Question: Where does the sister live?\nAnswer:", "What was red then, my dear old friend? Answer"]


@pytest.fixture
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    return make_model("llama", open_gates=True)


@pytest.fixture
def rows(model: MLMFModel, remember: Any, histories: Any) -> list[tuple[Tensor, MemoryState]]:
    """Two prompts of one length and the conversation each is about."""
    ids = [torch.tensor([model.tokenizer(text)["input_ids"]]) for text in ASKED]
    assert ids[0].shape == ids[1].shape
    return [(one, remember(model, [past])) for one, past in zip(ids, histories, strict=False)]


def test_threads_that_answer_and_remember_at_once_get_what_each_gets_alone(
    model: MLMFModel, rows: list[tuple[Tensor, MemoryState]], histories: Any
) -> None:
    """A server holds one model and many conversations."""
    jobs: list[Callable[[], Tensor]] = [
        lambda row=row: model.generate(row[0], state=row[1], max_new_tokens=12, do_sample=False)  # type: ignore[misc]
        for row in rows
    ]
    jobs.append(lambda: model.remember([histories[1][0]], model.init_state()).values)
    expected = [job() for job in jobs]
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], Tensor]) -> list[Tensor]:
        start.wait(timeout=30)
        return [job() for _ in range(4)]

    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(run, job) for job in jobs]
        for future, alone in zip(futures, expected, strict=True):
            assert all(torch.equal(result, alone) for result in future.result(timeout=60))


def test_two_forward_passes_before_one_backward_keep_their_own_memories(
    model: MLMFModel, rows: list[tuple[Tensor, MemoryState]]
) -> None:
    """Gradient checkpointing runs layers again in backward, when the model has long read another memory."""
    model.train()

    def gradients() -> list[Tensor]:
        model.zero_grad()
        losses = [model(ids, state=state, labels=ids).loss for ids, state in rows]
        (losses[0] + 2 * losses[1]).backward()
        return [fusion.o.weight.grad.clone() for fusion in model.memory.fusions]

    plain = gradients()
    model.gradient_checkpointing_enable()
    for ours, expected in zip(gradients(), plain, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
def test_after_a_training_step_the_wrapped_model_remembers_no_example(
    model: MLMFModel, rows: list[tuple[Tensor, MemoryState]], checkpointing: bool
) -> None:
    ids, state = rows[0]
    with torch.no_grad():
        expected = model.lm(ids).logits
    if checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    loss = model(ids, state=state, labels=torch.where(ids > 40, ids, IGNORED)).loss
    loss.backward()
    with torch.no_grad():
        assert torch.equal(model.lm(ids).logits, expected)
        assert torch.equal(model.eval().lm(ids).logits, expected)


def test_a_copy_of_the_model_is_a_model_of_its_own(model: MLMFModel, rows: list[tuple[Tensor, MemoryState]]) -> None:
    """Hooks and locks must not tie a deep copy to the model it came from."""
    ids, state = rows[0]
    with torch.no_grad():
        expected = model(ids, state=state).logits
        other = copy.deepcopy(model)
        for fusion in model.memory.fusions:
            fusion.g.zero_()
        assert torch.equal(other(ids, state=state).logits, expected)
