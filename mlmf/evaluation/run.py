"""A whole evaluation: every system on every task, then the scores, files and tables. ``folder.py`` says what lies where."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from mlmf.config.evaluation import EvalConfig
from mlmf.evaluation.asking import Pair, Stored, Task, answer_all, load_questions, stored_answers
from mlmf.evaluation.consistency import load_labels
from mlmf.evaluation.judge import load_judge
from mlmf.evaluation.provenance import uses_checkpoint
from mlmf.evaluation.report import terminal_report
from mlmf.evaluation.samples import sole_writer
from mlmf.evaluation.scoring import score_all
from mlmf.evaluation.summary import write_summary
from mlmf.evaluation.trained import refuse_trained, trained_conversations
from mlmf.paths import check_writable_folder
from mlmf.systems.build import check_systems


@dataclass(frozen=True)
class Outcome:
    """What a run leaves for its caller."""

    results: list[dict[str, Any]]
    """Contents of the results files, system by system within each task; empty after ``predict_only``."""
    tables: RenderableType
    report_path: Path | None
    """``None`` after ``predict_only``."""
    exit_code: int
    """1 when a system, or the LLM judge, failed on more than ``max_error_share`` of a task's questions, else 0."""


def run_evaluation(config: EvalConfig) -> Outcome:
    """Run what ``config`` describes and write everything below its ``output_dir``.

    Answers of an earlier run with the same settings are kept, so a stopped run continues.

    Raises:
        UserError: something in the settings, the data or the checkpoint is wrong; found before any question is asked
            where that is possible.
    """
    for seed in config.seeds:
        check_systems(config.for_seed(seed))
    output_dir = Path(config.output_dir)
    pairs = [(task, name) for name in config.system_names for task in config.task_names]
    for folder in (output_dir, *(output_dir / task / name for task, name in pairs)):
        check_writable_folder(folder, "output_dir")
    tasks = {name: load_questions(name, config) for name in config.task_names}
    trained = {pair: _trained_on(pair[1], config, tasks[pair[0]]) for pair in pairs}
    labels = load_labels(config.consistency_labels) if config.consistency_labels else []
    judge = None if config.predict_only else load_judge(config)
    with ExitStack() as locks:
        for task, name in pairs:
            locks.enter_context(sole_writer(output_dir / task / name))
        if config.score_only:
            stored = {pair: stored_answers(config, pair, tasks[pair[0]]) for pair in pairs}
        else:
            stored = answer_all(config, pairs, tasks)
        too_many = any(one.failed > config.max_error_share * len(one.answers) for one in stored.values())
        if config.predict_only:
            return Outcome([], _counts(stored), None, exit_code=int(too_many))
        results = score_all(config, tasks, stored, trained, labels, judge)
        too_many |= any(_share_not_judged(entry) > config.max_error_share for entry in results.values())
        ordered = [results[task, name] for task in tasks for name in config.system_names]
        comparisons = write_summary(output_dir, ordered, config.seeds[0])
    return Outcome(ordered, terminal_report(ordered, comparisons), output_dir / "report.md", exit_code=int(too_many))


def _trained_on(system: str, config: EvalConfig, task: Task) -> dict[str, Any] | None:
    """For the results: the conversations that a system's checkpoints were trained on, and those of them it is asked about."""
    if not uses_checkpoint(system, config):
        return None
    known: list[str] | None = []
    for checkpoint in dict.fromkeys(config.for_seed(seed).checkpoint for seed in config.seeds):
        assert checkpoint is not None
        ids = trained_conversations(checkpoint, task.data.task)
        if ids is not None and not config.allow_trained_conversations:
            refuse_trained(checkpoint, task.data.task, task.selected, ids)
        # one checkpoint that does not say makes the whole unknown
        known = None if known is None or ids is None else list(dict.fromkeys([*known, *ids]))
    return {"ids": known, "scored": [one.id for one in task.selected if one.id in set(known or ())]}


def _share_not_judged(results: dict[str, Any]) -> float:
    """Share of the answers that the LLM judge gave no verdict on, under the key where it is largest."""
    found = [key["scores"]["answerable"]["J"] for key in results["keys"].values()]
    return max((one["failed"] / (one["n"] + one["failed"]) for one in found if one), default=0.0)


def _counts(stored: dict[Pair, Stored]) -> Text:
    lines = [
        f"{task}, {name}: {len(one.answers):,} answers, {one.failed:,} failed" for (task, name), one in stored.items()
    ]
    return Text("\n".join([*lines, "Not scored; add --score_only true to the same command to score them."]))
