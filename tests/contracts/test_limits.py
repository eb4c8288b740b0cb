"""At the limits of what can be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mlmf.model import MLMFModel


@pytest.mark.parametrize("base", ["gpt2", "llama"])
@torch.no_grad()
def test_a_prompt_that_fills_the_base_models_window_is_read_with_memory(
    base: str, make_model: Callable[..., MLMFModel], remember: Any, histories: Any
) -> None:
    model = make_model(base, open_gates=True)
    state = remember(model, histories[:1])
    words = model.tokenizer("Where does the sister live? ")["input_ids"]
    ids = torch.tensor([words * 100])[:, -model.encoder.window :]
    assert ids.shape[1] == model.lm.config.max_position_embeddings
    output = model(ids, state=state)
    assert output.logits.isfinite().all() and output.recalls[0].chosen


def test_no_question_has_no_answer(make_model: Callable[..., MLMFModel], remember: Any, histories: Any) -> None:
    model = make_model("llama")
    assert model.answer_all([], remember(model, histories[:1])) == []
