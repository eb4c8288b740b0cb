"""A whole evaluation: every system on every task, then the scores, files and tables. ``folder.py`` says what lies where."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from transformers import set_seed

from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.evaluation.consistency import LabelledAnswer, LexicalJudge, judge_accuracy, load_labels
from mlmf.evaluation.folder import all_results, read_answers, summary_lock
from mlmf.evaluation.keys import AnswerKey, answer_keys
from mlmf.evaluation.plan import Planner, ask_after_each_period, ask_once
from mlmf.evaluation.provenance import answer_settings, forget_peak, memory_in_use, token_counter, uses_checkpoint
from mlmf.evaluation.report import markdown_report, terminal_report
from mlmf.evaluation.results import SCHEMA_VERSION, build_results, score_key, write_json
from mlmf.evaluation.runner import Runner, blank_sample
from mlmf.evaluation.samples import Sample, SampleFile, sole_writer, stored_samples
from mlmf.evaluation.scored import Scored, write_scores
from mlmf.evaluation.selection import load_from_config, select_questions
from mlmf.evaluation.trained import refuse_trained, trained_conversations
from mlmf.evaluation.usage import ratios
from mlmf.paths import atomic_write_text, check_writable_folder
from mlmf.systems.build import Shared, build_system, check_systems
from mlmf.types import Conversation

Pair = tuple[str, str]
"""A task and a system."""
Stored = dict[Pair, tuple[list[Sample], dict[str, Any]]]
"""Answers, and the settings they were made with."""


@dataclass(frozen=True)
class Outcome:
    """What a run leaves for its caller."""

    results: list[dict[str, Any]]
    """Contents of the results files, system by system within each task; empty after ``predict_only``."""
    tables: RenderableType
    report_path: Path | None
    """``None`` after ``predict_only``."""
    exit_code: int
    """1 when a system failed on more than ``max_error_share`` of a task's questions, else 0."""


@dataclass(frozen=True)
class _Task:
    """A task of the run: all its data, what is asked of it, and the keys it is scored against."""

    data: LoadedData
    selected: tuple[Conversation, ...]
    keys: list[AnswerKey]


def run_evaluation(config: EvalConfig) -> Outcome:
    """Run what ``config`` describes and write everything below its ``output_dir``.

    Answers of an earlier run with the same settings are kept, so a stopped run continues.

    Raises:
        UserError: something in the settings, the data or the checkpoint is wrong; found before any question is asked
            where that is possible.
    """
    check_systems(config)
    output_dir = Path(config.output_dir)
    pairs = [(task, name) for name in config.system_names for task in config.task_names]
    for folder in (output_dir, *(output_dir / task / name for task, name in pairs)):
        check_writable_folder(folder, "output_dir")
    tasks = {name: _load(name, config) for name in config.task_names}
    trained = {pair: _trained_on(pair[1], config, tasks[pair[0]]) for pair in pairs}
    labels = load_labels(config.consistency_labels) if config.consistency_labels else []
    with ExitStack() as locks:
        for task, name in pairs:
            locks.enter_context(sole_writer(output_dir / task / name))
        if config.score_only:
            stored = {pair: _stored(config, pair, tasks[pair[0]]) for pair in pairs}
        else:
            stored = _answer_all(config, pairs, tasks)
        too_many = any(
            sum(one.status == "error" for one in answers) > config.max_error_share * len(answers)
            for answers, _ in stored.values()
        )
        if config.predict_only:
            return Outcome([], _counts(stored), None, exit_code=int(too_many))
        results = _score_all(config, tasks, stored, trained, labels)
        ordered = [results[task, name] for task in tasks for name in config.system_names]
        _write_summary(output_dir, ordered, config.seed)
    return Outcome(ordered, terminal_report(ordered), output_dir / "report.md", exit_code=int(too_many))


def _score_all(
    config: EvalConfig,
    tasks: dict[str, _Task],
    stored: Stored,
    trained: dict[Pair, dict[str, Any] | None],
    labels: list[LabelledAnswer],
) -> dict[Pair, dict[str, Any]]:
    """Score all answers under all keys, and write ``scores.jsonl`` and ``results.json`` of each task and system."""
    output_dir = Path(config.output_dir)
    judge = LexicalJudge(config.consistency_threshold)
    scoring = {
        "success_threshold": config.success_threshold,
        "judge": judge.name,
        "consistency_threshold": judge.threshold,
        "judge_accuracy": judge_accuracy(judge, labels) if labels else None,
    }
    results: dict[Pair, dict[str, Any]] = {}
    for (task, name), (answers, settings) in stored.items():
        scored: dict[str, list[Scored]] = {}
        entries: dict[str, dict[str, Any]] = {}
        for key in tasks[task].keys:
            scored[key.name], entries[key.name] = score_key(
                task,
                answers,
                key,
                judge=judge,
                success_threshold=config.success_threshold,
                split=config.retention,
                seed=config.seed,
            )
        write_scores(output_dir / task / name / "scores.jsonl", scored)
        results[task, name] = build_results(
            name,
            tasks[task].data,
            answers,
            entries,
            settings=settings,
            scoring=scoring,
            trained_on=trained[task, name],
            seed=config.seed,
        )
    for (task, name), entry in results.items():
        if (task, "full_context") in results:
            entry["ratios_to_full_context"] = ratios(entry["usage"], results[task, "full_context"]["usage"])
        write_json(output_dir / task / name / "results.json", entry)
    return results


def _load(name: str, config: EvalConfig) -> _Task:
    data = load_from_config(name, config)
    selected = select_questions(data, config.conversations, config.limit)
    plan = _planner(config)
    for conversation in selected:
        plan(conversation)  # what the plan cannot be made for should be heard of now
    return _Task(data, selected, answer_keys(config.key, name, selected, config.audit_file))


def _planner(config: EvalConfig) -> Planner:
    return ask_once if config.retention is None else ask_after_each_period(config.retention)


def _trained_on(system: str, config: EvalConfig, task: _Task) -> dict[str, Any] | None:
    """For the results: the conversations that a system's checkpoint was trained on, and those of them that it is asked about."""
    if not uses_checkpoint(system, config):
        return None
    assert config.checkpoint is not None
    ids = trained_conversations(config.checkpoint, task.data.task)
    if ids is not None and not config.allow_trained_conversations:
        refuse_trained(config.checkpoint, task.data.task, task.selected, ids)
    return {"ids": ids, "scored": [one.id for one in task.selected if one.id in set(ids or ())]}


def _answer_all(config: EvalConfig, pairs: Sequence[Pair], tasks: dict[str, _Task]) -> Stored:
    """Answers and their settings, system by system, so that each is built once."""
    output_dir = Path(config.output_dir)
    count_tokens = token_counter(config)
    settings = {(task, name): answer_settings(name, config, tasks[task].data) for task, name in pairs}
    files = {
        (task, name): SampleFile(output_dir / task / name, settings[task, name], overwrite=config.overwrite)
        for task, name in pairs
    }
    shared = Shared(config)
    plan = _planner(config)
    stored: Stored = {}
    for name in config.system_names:
        set_seed(config.seed)
        system = build_system(name, shared)
        forget_peak()
        for task, loaded in tasks.items():
            total = sum(len(plan(conversation)) for conversation in loaded.selected)
            with _progress(f"{task}, {name}", total) as advance:
                runner = Runner(config.batch_size, count_tokens, plan, advance, memory_in_use)
                answers = runner.run(system, loaded.selected, files[task, name])
            stored[task, name] = answers, settings[task, name]
    return stored


def _stored(config: EvalConfig, pair: Pair, task: _Task) -> tuple[list[Sample], dict[str, Any]]:
    """The answers of an earlier run to the questions that are selected now, and what they were made with."""
    wanted = {
        "data_sha256": task.data.sha256,
        "probes_sha256": task.data.probes_sha256,
        "retention": config.retention,
    }
    samples, settings = stored_samples(Path(config.output_dir).joinpath(*pair), wanted)
    plan = _planner(config)
    by_key = {sample.key: sample for sample in samples}
    keys = [blank_sample(ask).key for conversation in task.selected for ask in plan(conversation)]
    found = [by_key[key] for key in keys if key in by_key]
    if not found:
        raise UserError(f"{Path(config.output_dir).joinpath(*pair)}: holds no answer to a question that is asked here")
    return found, settings


def _write_summary(output_dir: Path, own: Sequence[dict[str, Any]], seed: int) -> None:
    """``results.json`` and ``report.md`` of the folder, over this run and those before it."""
    with summary_lock(output_dir):
        results = all_results(output_dir, own)
        answers = {
            (entry["task"], entry["system"]): read_answers(output_dir / entry["task"] / entry["system"])
            for entry in results
        }
        write_json(output_dir / "results.json", {"schema_version": SCHEMA_VERSION, "results": results})
        atomic_write_text(output_dir / "report.md", markdown_report(results, answers, seed))


def _counts(stored: Stored) -> Text:
    lines = [
        f"{task}, {name}: {len(answers):,} answers, {sum(one.status == 'error' for one in answers):,} failed"
        for (task, name), (answers, _) in stored.items()
    ]
    return Text("\n".join([*lines, "Not scored; add --score_only true to the same command to score them."]))


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left, on a terminal only; ``TQDM_DISABLE`` switches it off there, too."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    disable = not console.is_terminal or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    with Progress(*columns, console=console, disable=disable) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda count: progress.advance(bar, count)
