"""The card of a checkpoint: what the Hugging Face hub reads of it, and what a person does."""

from __future__ import annotations

from typing import Any

from huggingface_hub import EvalResult, ModelCard

from mlmf.card import NOT_MEASURED, model_card

CONFIG: dict[str, Any] = {"base_model": "some/base", "mlmf_version": "9.9"}


def test_a_trained_model_says_what_it_read_in_which_order_and_whose_it_is() -> None:
    gaps = {"task": "locco", "objectives": ["cloze"], "named_share": 0.5, "examples": 12345, "total_steps": 70,
            "conversation_ids": {"locco": ["a", "b"], "msc": ["c"]}}  # fmt: skip
    answers = {"task": "mine", "objectives": ["answer"], "named_share": 0.0, "examples": 8, "total_steps": 3,
               "conversation_ids": {"mine": ["x"]}}  # fmt: skip
    card = model_card(CONFIG, [gaps, answers])
    first = "1. 2 conversations of locco, 1 conversation of msc; 12,345 examples, 70 optimiser steps, objectives: ['cloze'], named_share: 0.5"
    assert first in card and card.index(first) < card.index("2. 1 conversation of mine; 8 examples, 3 optimiser steps")
    licences = card.split("## Data and licences\n")[1].split("\n")[:3]
    assert ["MIT" in licences[0], "unstated" in licences[1], licences[2]] == [True, True, "* mine: data of your own."]
    assert NOT_MEASURED in card and "untrained" not in card


def test_the_hub_reads_the_base_model_and_the_scores() -> None:
    plain = ModelCard(model_card(CONFIG, []))
    assert plain.data.base_model == "some/base" and plain.data.library_name == "mlmf"
    assert "* untrained" in plain.text and "* It has seen no data." in plain.text and plain.data.eval_results is None
    result = EvalResult(
        task_type="question-answering", dataset_type="locco", dataset_name="locco", metric_type="f1", metric_value=0.5
    )
    scored = ModelCard(model_card(CONFIG, [], "| F1 |", [result]))
    assert [one.metric_value for one in scored.data.eval_results or []] == [0.5] and "| F1 |" in scored.text
