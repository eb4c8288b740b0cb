"""A whole evaluation: every system on every task, then the files and tables.

Files in ``output_dir``::

    results.json                      all tasks and systems of this run
    report.md                         the same for people, with sample answers
    <task>/<system>/samples.jsonl     one line per question, written as it is answered
    <task>/<system>/settings.json     what those answers were made with
    <task>/<system>/results.json      the scores
    <task>/<system>/.lock             held while a run writes there
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import AutoTokenizer, PreTrainedTokenizerBase, set_seed

from mlmf.base_model import TINY, resolve_base
from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import LoadedData, load_task
from mlmf.errors import UserError, unknown_name
from mlmf.evaluation.report import markdown_report, terminal_report
from mlmf.evaluation.results import SCHEMA_VERSION, build_results, write_json
from mlmf.evaluation.runner import Runner
from mlmf.evaluation.samples import Sample, SampleFile, sole_writer
from mlmf.paths import atomic_write_text, check_writable_folder, sha256_of
from mlmf.systems.build import Shared, build_system, check_systems, system_settings
from mlmf.tiny import tiny_tokenizer
from mlmf.types import Conversation


@dataclass(frozen=True)
class Outcome:
    """What a run leaves for its caller."""

    results: list[dict[str, Any]]
    """Contents of the results files, system by system within each task."""
    tables: RenderableType
    report_path: Path
    exit_code: int
    """1 when a system failed on more than ``max_error_share`` of a task's questions, else 0."""


def run_evaluation(config: EvalConfig) -> Outcome:
    """Run what ``config`` describes and write everything below its ``output_dir``.

    Answers of an earlier run with the same settings are kept, so a stopped run continues.

    Raises:
        UserError: something in the settings, the data or the checkpoint is wrong; found before any question is asked
            where that is possible.
    """
    check_systems(config)
    output_dir = Path(config.output_dir)
    for folder in (
        output_dir,
        *(output_dir / task / name for task in config.task_names for name in config.system_names),
    ):
        check_writable_folder(folder, "output_dir")
    tasks = {name: _load(name, config) for name in config.task_names}
    selected = {name: select_questions(data, config.conversations, config.limit) for name, data in tasks.items()}
    count_tokens = _token_counter(config)
    with ExitStack() as locks:
        for task in tasks:
            for name in config.system_names:
                locks.enter_context(sole_writer(output_dir / task / name))
        return _answer_all(config, tasks, selected, count_tokens)


def _answer_all(
    config: EvalConfig,
    tasks: dict[str, LoadedData],
    selected: dict[str, tuple[Conversation, ...]],
    count_tokens: Callable[[str], int],
) -> Outcome:
    shared = Shared(config)
    output_dir = Path(config.output_dir)
    pairs = [(task, name) for name in config.system_names for task in tasks]
    settings = {(task, name): _settings(name, config, tasks[task]) for task, name in pairs}
    files = {
        (task, name): SampleFile(output_dir / task / name, settings[task, name], overwrite=config.overwrite)
        for task, name in pairs
    }
    results: dict[tuple[str, str], dict[str, Any]] = {}
    samples: dict[tuple[str, str], list[Sample]] = {}
    for name in config.system_names:
        set_seed(config.seed)
        system = build_system(name, shared)
        for task, data in tasks.items():
            key = (task, name)
            total = sum(len(conversation.questions) for conversation in selected[task])
            with _progress(f"{task}, {name}", total) as advance:
                runner = Runner(task, config.batch_size, count_tokens, advance)
                samples[key] = runner.run(system, selected[task], files[key])
            results[key] = build_results(name, data, samples[key], settings=settings[key], seed=config.seed)
            write_json(output_dir / task / name / "results.json", results[key])
    ordered = [results[task, name] for task in tasks for name in config.system_names]
    write_json(output_dir / "results.json", {"schema_version": SCHEMA_VERSION, "results": ordered})
    atomic_write_text(output_dir / "report.md", markdown_report(ordered, samples, config.seed))
    too_many = any(entry["n"]["failed"] > config.max_error_share * entry["n"]["effective"] for entry in ordered)
    return Outcome(ordered, terminal_report(ordered), output_dir / "report.md", exit_code=int(too_many))


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


def _load(task: str, config: EvalConfig) -> LoadedData:
    return load_task(
        task,
        data_file=config.data_file,
        probes=config.probes,
        split=config.split,
        allow_unknown_data=config.allow_unknown_data,
    )


def _settings(system: str, config: EvalConfig, data: LoadedData) -> dict[str, Any]:
    """Everything that may change an answer. Batch size, device and limit do not; text systems share the prompt settings."""
    settings: dict[str, Any] = {
        "system": system,
        "task": data.task,
        "data_sha256": data.sha256,
        "probes_sha256": data.probes_sha256,
        "max_new_tokens": config.max_new_tokens,
        "seed": config.seed,
        "checkpoint_sha256": None,
        "checkpoint_base": None,
    }
    if config.checkpoint is not None and (system == "mlmf" or config.answer_model == "checkpoint"):
        settings["checkpoint_sha256"] = _folder_sha256(Path(config.checkpoint))
        if config.checkpoint_base is not None:
            # the last part only: results name no place on the machine they come from
            settings["checkpoint_base"] = Path(config.checkpoint_base).name
    settings |= system_settings(system, config)
    return settings


def _folder_sha256(folder: Path) -> str:
    """One sha256 over the names and contents of a checkpoint's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".safetensors"):
            digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _token_counter(config: EvalConfig) -> Callable[[str], int]:
    """Counts the tokens of a conversation, the same for every system of a run."""
    source = f"{config.checkpoint}/tokenizer" if config.checkpoint else resolve_base(config.base_model)
    tokenizer: PreTrainedTokenizerBase
    if source == TINY:
        tokenizer = tiny_tokenizer()
    elif not Path(source).is_dir():
        raise UserError(f"checkpoint {config.checkpoint}: holds no tokenizer, so train.py did not save it")
    else:
        tokenizer = AutoTokenizer.from_pretrained(source)
    return lambda text: len(tokenizer(text, add_special_tokens=False).input_ids)


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
