"""What a training reads: the conversations of its tasks, some of them a second time with names, and where they are from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mlmf.config.training import TrainConfig
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.training.third_person import PARTNERS, can_be_swapped, with_names
from mlmf.types import Conversation

TRAINING_SPLIT = {"locco": "train", "msc": "valid"}
"""What each task trains on unless told otherwise; tasks without splits are not listed."""


@dataclass(frozen=True)
class TrainingData:
    """Conversations, and the ids of those of each task: who scores the model refuses to do it on them."""

    conversations: tuple[Conversation, ...]
    ids: dict[str, list[str]]


def load_training_data(config: TrainConfig) -> TrainingData:
    """What ``config`` trains on.

    Raises:
        UserError: unknown task, split or conversation, unreadable file, nothing left, nothing to swap.
    """
    parts = [(config.task, _main(config)), *(_also(entry, config) for entry in config.also)]
    ids: dict[str, dict[str, None]] = {}
    for task, part in parts:
        ids.setdefault(task, {}).update(dict.fromkeys(conversation.id for conversation in part))
    read = [conversation for _, part in parts for conversation in part]
    drawn = random.Random(f"named {config.seed}").sample(read, round(config.named_share * len(read)))
    named = [with_names(conversation, config.seed, config.swapped_share) for conversation in drawn]
    copies = [copy for copy in named if copy is not None]
    if config.swapped_share and not any(map(can_be_swapped, read)):
        raise UserError(
            f"swapped_share is {config.swapped_share}, and of these conversations none has questions that a User asks about "
            f"what they told {' or '.join(sorted(PARTNERS))}: nobody could be asked about instead; set it to 0"
        )
    return TrainingData((*read, *copies), {task: list(known) for task, known in ids.items()})


def training_split(config: TrainConfig) -> str | None:
    """The split of its task that ``config`` trains on; none where the data is a file or has no splits."""
    if config.split is None and config.data_file is None and config.probes is None:
        return TRAINING_SPLIT.get(config.task)
    return config.split


def _main(config: TrainConfig) -> Sequence[Conversation]:
    data = load_task(
        config.task,
        data_file=config.data_file,
        probes=config.probes,
        split=training_split(config),
        allow_unknown_data=config.allow_unknown_data,
    )
    if config.conversations is None:
        return data.conversations
    known = {conversation.id: conversation for conversation in data.conversations}
    missing = [name for name in config.conversations if name not in known]
    if missing:
        raise UserError(f"{data.source} has no conversation {missing[0]!r}. It has: {', '.join(known)}")
    return tuple(known[name] for name in config.conversations)


def _also(entry: str, config: TrainConfig) -> tuple[str, Sequence[Conversation]]:
    task, _, split = entry.partition(":")
    try:
        conversations = load_task(task, split=split or TRAINING_SPLIT.get(task)).conversations
    except UserError as error:
        raise UserError(f"also: {entry}: {error}") from error
    wanted = min(config.also_conversations or len(conversations), len(conversations))
    return task, random.Random(f"also {config.seed} {entry}").sample(conversations, wanted)
