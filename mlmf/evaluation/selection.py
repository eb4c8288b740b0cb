"""Which questions a run asks: the tasks it names, the conversations it picks, and the limit it sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import LoadedData, load_task
from mlmf.errors import UserError, unknown_name
from mlmf.types import Conversation


def load_from_config(task: str, config: EvalConfig) -> LoadedData:
    """One task of a run.

    Raises:
        UserError: anything wrong with its name, its file or the settings about it.
    """
    return load_task(
        task,
        data_file=config.data_file,
        probes=config.probes,
        split=config.split,
        allow_unknown_data=config.allow_unknown_data,
        captions=config.captions,
    )


def select_questions(data: LoadedData, wanted: Sequence[str] | None, limit: int | None) -> tuple[Conversation, ...]:
    """The conversations to ask about, with the questions to ask.

    Args:
        data: the whole task.
        wanted: ids of conversations; ``None`` takes all that have questions.
        limit: take the first so many questions of them all; ``None`` takes every one.

    Raises:
        UserError: an id that the task does not have, or nothing to ask.
    """
    ids = [conversation.id for conversation in data.conversations]
    for conversation_id in wanted or ():
        if conversation_id not in ids:
            raise unknown_name(f"conversation of {data.task}", conversation_id, ids)
    selected = []
    left = limit
    for conversation in data.conversations:
        if wanted is not None and conversation.id not in wanted:
            continue
        questions = conversation.questions[:left]
        if questions:
            selected.append(replace(conversation, questions=questions))
        left = None if left is None else left - len(questions)
    if not selected:
        raise UserError(f"{data.source}: task {data.task} has no questions to ask; {_way_to_questions(data.task)}")
    return tuple(selected)


def _way_to_questions(task: str) -> str:
    if task.startswith("locco"):
        return "give --probes FILE"
    if task == "jsonl":
        return 'add "questions" to its conversations (`python -m pydoc mlmf.data.jsonl` describes them)'
    return "give another --data_file" if task == "locomo" else "choose another task"
