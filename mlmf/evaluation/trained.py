"""Which conversations a checkpoint was trained on, and the refusal to score it on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlmf.checkpoint import training_stages
from mlmf.errors import UserError
from mlmf.types import Conversation

SHOWN = 5


def trained_conversations(checkpoint: str | Path, task: str) -> list[str] | None:
    """Ids of the conversations of ``task`` that a checkpoint's training read, at any stage.

    Returns:
        The ids, none for an untrained checkpoint or one trained on another task; ``None`` where the checkpoint does not
        say.

    Raises:
        UserError: not a checkpoint.
    """
    found: dict[str, None] = {}
    for facts in training_stages(checkpoint):
        ids = facts.get("conversation_ids")
        if ids is None:
            return None
        found |= dict.fromkeys(ids.get(task, ()))
    return list(found)


def refuse_trained(
    checkpoint: str | Path,
    task: str,
    conversations: Sequence[Conversation],
    trained: Sequence[str],
    *,
    fold: int | None = None,
) -> None:
    """Refuse to score a checkpoint on what it was trained on.

    Args:
        checkpoint: its folder.
        task: whose conversations they are.
        conversations: those it would be asked about.
        trained: ids of those its training read.
        fold: the fold whose checkpoint it is, where there are folds.

    Raises:
        UserError: names the conversations, and how to leave them out.
    """
    seen = [one.id for one in conversations if one.id in set(trained)]
    if not seen:
        return
    left = [one.id for one in conversations if one.id not in set(seen)]
    way_out = f"score it on others (--conversations {' '.join(left[:SHOWN])})" if left else "score it on others"
    if fold is not None:
        way_out = f"fold {fold} tests them, so give the --folds and --fold_seed that its training was divided by"
    more = f" and {len(seen) - SHOWN:,} more" if len(seen) > SHOWN else ""
    raise UserError(
        f"checkpoint {checkpoint} was trained on {', '.join(seen[:SHOWN])}{more} of task {task}, so its scores there say "
        f"nothing about memory; {way_out}, or pass --allow_trained_conversations true"
    )
