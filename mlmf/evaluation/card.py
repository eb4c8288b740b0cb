"""Put the scores of finished runs into the model card of the checkpoint that they scored.

Examples:
    python -m mlmf.evaluation.card outputs/mine/final outputs/eval/locco/mlmf outputs/eval/locomo/mlmf
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult

from mlmf.card import model_card
from mlmf.checkpoint import CARD, read_metadata, training_stages
from mlmf.config.parse import run_script
from mlmf.config.variants import MLMF, base_system
from mlmf.errors import UserError
from mlmf.evaluation.provenance import folder_sha256
from mlmf.evaluation.reference_runs import Entry, read_run
from mlmf.evaluation.tables import Grid, interval, markdown_grid, number, percent
from mlmf.paths import atomic_write_text

KEY = "raw"
"""The published key: the audited one leaves questions out."""


def scored(checkpoint: Path, folders: Sequence[str]) -> list[Entry]:
    """The runs in some folders, all of them by this checkpoint.

    Raises:
        UserError: a folder holds no finished run, another system's or another model's.
    """
    ours, entries = folder_sha256(checkpoint), []
    for folder in folders:
        entry = read_run(folder, "card")
        if entry is None:
            raise UserError(f"{folder}: no such folder; give DIR/TASK/SYSTEM of a finished evaluate.py")
        if base_system(entry["system"]) != MLMF:
            raise UserError(
                f"{folder}: is about {entry['system']}, whatever model answered for it; give a run of {MLMF}"
            )
        if any(one["checkpoint_sha256"] != ours for one in entry["settings"].values()):
            raise UserError(f"{folder}: answered by another model than {checkpoint}; score this one with evaluate.py")
        entries.append(entry)
    return entries


def grid(entries: Sequence[Entry], default: int) -> Grid:
    """A row a run: F1, how often it abstains rightly and wrongly, and how much of the evidence it had read.

    Args:
        entries: the runs.
        default: recalled tokens where a run changed nothing about them.
    """
    header = [
        "task",
        "recalled tokens",
        "F1",
        "95 % interval",
        "traps refused",
        "wrongly refused",
        "evidence recall",
        "answerable",
        "traps",
    ]
    rows = []
    for entry in entries:
        scores, shown = entry["keys"][KEY]["scores"], recalled_tokens(entry, default)
        f1 = scores["answerable_f1"]
        rows.append([
            entry["task"], str(shown), number(f1["mean"]), interval(f1["ci95"]), percent(scores["abstention_on_traps"]["mean"]),
            percent(scores["over_refusal"]["mean"]), number(scores["evidence"]["recall"]), f"{f1['n']:,}",
            f"{scores['abstention_on_traps']['n']:,}",
        ])  # fmt: skip
    return header, rows


def recalled_tokens(entry: Entry, default: int) -> int:
    """Tokens of recalled text in the prompt, ``default`` where the run changed nothing about them: 0 is the question alone."""
    changed = next(iter(entry["settings"].values())).get("memory") or {}
    return int(changed.get("recall_tokens", default))


def write_card(checkpoint: Path, folders: Sequence[str]) -> Path:
    """The checkpoint's README with what the runs in ``folders`` measured; returns its path."""
    config, entries = read_metadata(checkpoint), scored(checkpoint, folders)
    default = config["memory"]["recall_tokens"]
    results = [
        EvalResult(
            task_type="question-answering", dataset_type=entry["task"], dataset_name=entry["task"], metric_type="f1",
            metric_name=f"F1 of answerable questions, {recalled_tokens(entry, default)} recalled tokens",
            metric_value=round(entry["keys"][KEY]["scores"]["answerable_f1"]["mean"], 4),
        )
        for entry in entries
    ]  # fmt: skip
    about = (
        "F1 is over the questions that have an answer, the interval by bootstrap over conversations; with 0 recalled tokens the "
        "prompt is the question alone."
    )
    for entry in entries:
        if entry["is_limited"]:
            about += (
                f" Of {entry['task']}, {entry['n']['effective']:,} of {entry['n']['original']:,} questions were asked."
            )
    scores = f"{markdown_grid(grid(entries, default))}\n\n{about}"
    atomic_write_text(checkpoint / CARD, model_card(config, training_stages(checkpoint), scores, results))
    return checkpoint / CARD


def main() -> int:
    """Parse, read, write."""
    parser = argparse.ArgumentParser(
        prog="python -m mlmf.evaluation.card", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("checkpoint", type=Path, help="folder of a trained memory")
    parser.add_argument("results", nargs="+", help="DIR/TASK/SYSTEM of finished evaluate.py runs of it")
    arguments = parser.parse_args()
    print(write_card(arguments.checkpoint, arguments.results))
    return 0


if __name__ == "__main__":
    run_script(main)
