"""The output folder, which several runs may fill: what lies where, and what all of them together have found.

Files::

    results.json                              all tasks and systems that were scored into this folder
    report.md                                 the same for people, with sample answers
    report.html, plots/                       the same with plots and every question (extra ``report``)
    judge.sqlite                              what the LLM judge said, so that it is asked once
    <task>/<system>/seed_<n>/samples.jsonl    one line per answer, written as it is given
    <task>/<system>/seed_<n>/settings.json    what those answers were made with
    <task>/<system>/scores.jsonl              one line per answer and key, beside its gold side
    <task>/<system>/results.json              the scores, over all seeds
    <task>/<system>/.lock                     held while a run writes there
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from mlmf.errors import UserError
from mlmf.evaluation.results import SCHEMA_VERSION
from mlmf.evaluation.samples import LOCK_FILE, read_samples

logger = logging.getLogger(__name__)

Results = dict[str, Any]
Answers = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""By task and system, what :func:`read_answers` gives."""
OF_SAMPLE = (
    "question", "prediction", "error", "recalled", "recalled_lines", "tokens_read", "tokens_history", "seconds",
    "turns_left_out",
)  # fmt: skip
"""What reports need of an answer beside its scores."""


@contextmanager
def summary_lock(output_dir: Path) -> Iterator[None]:
    """Wait until no other run writes the summary in the folder itself, and keep others out meanwhile."""
    output_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(output_dir / LOCK_FILE):
        yield


def all_results(output_dir: Path, own: Sequence[Results]) -> list[Results]:
    """The results of this run, in its order, then those that other runs left in the folder, by task and system.

    A file of another schema version is passed over, and that is logged.
    """
    ours = {(entry["task"], entry["system"]) for entry in own}
    others = []
    for path in sorted(output_dir.glob("*/*/results.json")):
        if (path.parent.parent.name, path.parent.name) in ours:
            continue
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry.get("schema_version") == SCHEMA_VERSION:
            others.append(entry)
        else:
            logger.warning("%s: of another version of mlmf, left out of the summary", path)
    return [*own, *others]


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the answers of one seed lie, in the folder of a task and system."""
    return folder / f"seed_{seed}"


def read_answers(folder: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The lines of ``scores.jsonl``, each with the fields :data:`OF_SAMPLE` of its answer.

    Args:
        folder: of a task and system.
        seeds: those that were scored.

    Raises:
        UserError: a file was cut off, or scores and answers are of different runs.
    """
    samples = {
        (seed, *sample.key): sample
        for seed in seeds
        for sample in read_samples(seed_folder(folder, seed) / "samples.jsonl")
    }
    rows = []
    scores = folder / "scores.jsonl"
    *lines, rest = scores.read_text(encoding="utf-8").split("\n")
    if rest:
        raise UserError(f"{scores} was cut off in line {len(lines) + 1}; score it again with evaluate.py --score_only")
    for line in lines:
        row = json.loads(line)
        sample = samples.get((row["seed"], row["conversation_id"], row["index"], row["period"] or 0))
        if sample is None:
            raise UserError(
                f"{scores} scores answers that are not in samples.jsonl: of question {row['index']} of {row['conversation_id']}, seed "
                f"{row['seed']}; wait until evaluate.py is done there, or score again with --score_only"
            )
        rows.append(row | {name: getattr(sample, name) for name in OF_SAMPLE})
    return rows
