"""Put what ``evaluate.py`` scored beside the recall of the same memory in ``results/addressing.json``; nothing is asked again.

    python -m benchmarks.addressing_answers locomo_zero_shot=DIR/locomo/mlmf locco=DIR/locco/mlmf

Run it after ``benchmarks.addressing``, which writes a memory's figures anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.addressing import RESULTS, read_stored
from mlmf.config.parse import run_script
from mlmf.errors import UserError
from mlmf.evaluation.reference_runs import figures, read_run
from mlmf.evaluation.results import write_json


def answered(entry: dict[str, Any]) -> dict[str, Any]:
    """F1 over answerable questions with its interval, shares of refusals, and how much was asked and read."""
    return {
        **figures(entry, ("f1_answerable", "abstention", "over_refusal")),
        "f1_answerable_interval": entry["keys"]["raw"]["scores"]["answerable_f1"]["ci95"],
        "tokens_read": entry["usage"]["tokens_read"],
        "n_answers": entry["n"]["answers"],
    }


def add_answers(stored: dict[str, Any], named: Sequence[str]) -> None:
    """Add to figures of recall, in place, the scores of runs given as ``NAME=DIR/TASK/SYSTEM``.

    Raises:
        UserError: there are no figures of a name, or no finished run.
    """
    for pair in named:
        name, _, folder = pair.partition("=")
        if name not in stored or not folder:
            raise UserError(f"{pair}: give NAME=DIR/TASK/SYSTEM; {RESULTS} has {', '.join(stored) or 'nothing yet'}")
        entry = read_run(folder, name)
        if entry is None:
            raise UserError(f"{pair}: there is no folder {folder}; evaluate.py leaves one for each task and system")
        stored[name] |= answered(entry)


def main() -> int:
    """Parse, read, write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.addressing_answers", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("runs", nargs="+", metavar="NAME=DIR/TASK/SYSTEM")
    stored = read_stored()
    add_answers(stored, parser.parse_args().runs)
    write_json(RESULTS, stored)
    return 0


if __name__ == "__main__":
    run_script(main)
