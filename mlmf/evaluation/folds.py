"""Which conversations of a task each checkpoint is asked about, where every fold has a checkpoint of its own."""

from __future__ import annotations

from mlmf.config.evaluation import EvalConfig
from mlmf.data.splits import k_folds
from mlmf.data.tasks import LoadedData


def tested_in(config: EvalConfig, data: LoadedData) -> list[tuple[str, ...]] | None:
    """Ids of the conversations that each fold tests; ``None`` without folds.

    They are divided as ``python -m mlmf.data.splits`` divides them, whatever part of them a run asks about.

    Raises:
        UserError: more folds than conversations.
    """
    if config.folds is None:
        return None
    return [fold.test for fold in k_folds([one.id for one in data.conversations], config.folds, seed=config.fold_seed)]
