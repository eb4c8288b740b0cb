"""Folds by conversation, for training and testing on one benchmark: ``python -m mlmf.data.splits locomo --folds 5``.

Questions about one conversation share everything that is said in it, so a fold is made of whole conversations.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mlmf.data.tasks import TASKS, load_task
from mlmf.errors import UserError


@dataclass(frozen=True, slots=True)
class Fold:
    """Ids to train on and ids to test on; every conversation is in one of the two."""

    train: tuple[str, ...]
    test: tuple[str, ...]


def k_folds(ids: Sequence[str], folds: int, *, seed: int = 0) -> list[Fold]:
    """Divide conversations into folds; each is tested exactly once.

    Args:
        ids: of the conversations, each once. Their order does not matter.
        folds: how many, from 2 to the number of conversations. Test parts differ by at most one in size.
        seed: of the shuffle; the same one gives the same folds on every machine.

    Raises:
        UserError: another number of folds, or an id given twice.
    """
    if len(set(ids)) != len(ids):
        raise UserError("folds: a conversation is named twice")
    if not 2 <= folds <= len(ids):
        raise UserError(f"folds: must be 2 to {len(ids)}, the number of conversations, got {folds}")
    shuffled = sorted(ids)
    random.Random(seed).shuffle(shuffled)
    tests = [set(shuffled[number::folds]) for number in range(folds)]
    return [
        Fold(tuple(one for one in ids if one not in test), tuple(one for one in ids if one in test)) for test in tests
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: the ids of each fold as settings of train.py and evaluate.py; 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.data.splits", description="Folds by conversation.")
    parser.add_argument("task", choices=sorted(TASKS), help="whose conversations")
    parser.add_argument("--data_file", help="as for train.py and evaluate.py")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        ids = [one.id for one in load_task(options.task, data_file=options.data_file).conversations]
        found = k_folds(ids, options.folds, seed=options.seed)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for number, fold in enumerate(found):
        print(f"fold {number}\n  train.py    --conversations {' '.join(fold.train)}")
        print(f"  evaluate.py --conversations {' '.join(fold.test)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
