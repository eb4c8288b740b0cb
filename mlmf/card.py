"""The model card of a checkpoint: what it is, what it was trained on and how, what it scores, and what it is not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

STAGE_FACTS = ("objectives", "named_share", "swapped_share", "untold_share", "shown_share", "lambda_ret", "seed")
"""What is said of a stage of training beside its data and its length, where it was set."""
SIZES = {"examples": "examples", "total_steps": "optimiser steps"}
LICENCES = {
    "locco": "LOCCO (Jia et al., Findings of ACL 2025): MIT; the questions about its users were written for mlmf: MIT",
    "locomo": "LoCoMo (Maharana et al., ACL 2024): CC BY-NC 4.0, not for commercial use",
    "msc": "Multi-Session Chat (Xu et al., ACL 2022): the licence of its data is unstated",
}
"""By task, the data and what its authors allow."""
NOT_MEASURED = "Not measured yet. `python -m mlmf.evaluation.card` puts the scores of finished runs here."


def model_card(
    config: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    scores: str = NOT_MEASURED,
    results: Sequence[EvalResult] = (),
) -> str:
    """The README of a checkpoint folder, as the Hugging Face hub shows it.

    Args:
        config: the checkpoint's ``config.json``.
        stages: what is known of each training that made it, the first one first.
        scores: Markdown about what it scores.
        results: the same for the hub's own table.
    """
    data = ModelCardData(
        base_model=config["base_model"],
        library_name="mlmf",
        tags=["memory", "long-term-memory", "dialogue"],
        model_name=f"mlmf-{config['base_model'].rsplit('/', 1)[-1]}" if results else None,
        eval_results=list(results) or None,
    )
    return f"""---
{data.to_yaml()}
---
# mlmf memory for {config["base_model"]}

Working, episodic and semantic memory (mlmf {config["mlmf_version"]}) with LoRA adapters: the model remembers sessions of a
conversation as states and answers questions about them with nothing but the question in the prompt. What conversations told
the model is not in here: memory states are saved apart.

```python
from mlmf import MLMFModel

model = MLMFModel.from_pretrained("THIS_FOLDER_OR_HUB_ID")
state = model.init_state(batch_size=1)
state = model.remember([session], state)  # an mlmf.types.Session
print(model.answer("Where did Anna find her cat?", state).text)
```

## Scores
{scores}

## Training
{_training(stages)}

## Data and licences
{_licences(stages)}
* The base model keeps its own licence; its weights are not in here.

## Intended use
Answering questions about earlier conversations with the same people, in the language and style of the training data, and
research on memory. It says what nobody said, and takes one person's facts for another's: the scores tell how often. Do not let it decide
anything about people. A memory state holds what people told; keep it as you would keep their letters, and let them have it
deleted (`model.forget`).
"""


def _training(stages: Sequence[Mapping[str, Any]]) -> str:
    if not stages:
        return "* untrained"
    lines = []
    for number, stage in enumerate(stages, start=1):
        told = [f"{name}: {stage[name]}" for name in STAGE_FACTS if stage.get(name)]
        length = [f"{stage[name]:,} {what}" for name, what in SIZES.items() if name in stage]
        lines.append(f"{number}. {', '.join(_data(stage))}; {', '.join([*length, *told])}")
    return "\n".join(lines)


def _data(stage: Mapping[str, Any]) -> list[str]:
    ids = stage.get("conversation_ids")
    if not ids:
        return [str(stage.get("task"))]
    return [f"{len(known):,} conversation{'s' * (len(known) != 1)} of {task}" for task, known in ids.items()]


def _licences(stages: Sequence[Mapping[str, Any]]) -> str:
    tasks = dict.fromkeys(task for stage in stages for task in stage.get("conversation_ids", {stage.get("task"): ()}))
    lines = [f"* {LICENCES.get(str(task), f'{task}: data of your own')}." for task in tasks]
    return "\n".join(lines) or "* It has seen no data."
