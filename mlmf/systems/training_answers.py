"""The training questions whose answers ``most_frequent`` counts: never those it is asked."""

from __future__ import annotations

from pathlib import Path

from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.types import Question


def training_questions(config: EvalConfig) -> list[Question]:
    """Every question of ``training_task``: of its ``training_file``, or else of its own training part.

    Raises:
        UserError: the file cannot be read, the task has no training part of its own, or a conversation that is asked
            about is also among the training ones.
    """
    task, file = config.training_task, config.training_file
    if file is None and task not in ("locco", "recall"):
        raise UserError(
            f"most_frequent: training_task {task} has no training part of its own; give --training_file FILE"
        )
    if file is None:
        data = load_task(task, split="train")
    elif task.startswith("locco"):
        data = load_task(task, probes=file)
    else:
        data = load_task(task, data_file=file, allow_unknown_data=True)
    asked = {
        conversation.id
        for name in config.task_names
        for conversation in load_task(
            name,
            data_file=config.data_file,
            probes=config.probes,
            split=config.split,
            allow_unknown_data=config.allow_unknown_data,
        ).conversations
        if conversation.questions and conversation.id in (config.conversations or [conversation.id])
    }
    both = sorted(asked & {conversation.id for conversation in data.conversations})
    if both:
        source = Path(file).name if file else f"the training part of {task}"
        raise UserError(
            f"most_frequent: {source} holds conversation {both[0]!r}, which is asked about; the training answers must "
            "come from other conversations. Give another --training_file, or leave it out with --conversations"
        )
    return [question for conversation in data.conversations for question in conversation.questions]
