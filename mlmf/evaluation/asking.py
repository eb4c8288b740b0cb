"""Ask every system every question under every seed, or find the answers that an earlier run left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from mlmf.config.evaluation import EvalConfig
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.evaluation.folder import seed_folder
from mlmf.evaluation.keys import AnswerKey, answer_keys
from mlmf.evaluation.plan import Planner, ask_after_each_period, ask_once
from mlmf.evaluation.progress import progress_bar
from mlmf.evaluation.provenance import answer_settings, forget_peak, memory_in_use, token_counter
from mlmf.evaluation.runner import Runner, blank_sample
from mlmf.evaluation.samples import Sample, SampleFile, stored_samples
from mlmf.evaluation.selection import load_from_config, select_questions
from mlmf.systems.build import Shared, build_system
from mlmf.types import Conversation

Pair = tuple[str, str]
"""A task and a system."""


@dataclass(frozen=True)
class Task:
    """A task of the run: all its data, what is asked of it, and the keys it is scored against."""

    data: LoadedData
    selected: tuple[Conversation, ...]
    keys: list[AnswerKey]


@dataclass(frozen=True)
class Stored:
    """The answers of one system on one task, of all seeds, and the settings that each seed was asked under."""

    answers: list[Sample]
    settings: dict[str, dict[str, Any]]
    """By seed."""

    @property
    def failed(self) -> int:
        """Questions without an answer."""
        return sum(one.status == "error" for one in self.answers)


def load_questions(name: str, config: EvalConfig) -> Task:
    """A task of the run; what cannot be asked as the settings want is refused here."""
    data = load_from_config(name, config)
    selected = select_questions(data, config.conversations, config.limit)
    plan = planner(config)
    for conversation in selected:
        plan(conversation)  # what the plan cannot be made for should be heard of now
    return Task(data, selected, answer_keys(config.key, name, selected, config.audit_file))


def planner(config: EvalConfig) -> Planner:
    """When the questions of a run are asked."""
    return ask_once if config.retention is None else ask_after_each_period(config.retention)


def answer_all(config: EvalConfig, pairs: Sequence[Pair], tasks: dict[str, Task]) -> dict[Pair, Stored]:
    """Ask everything that has no answer yet, seed by seed and system by system, so that models are loaded seldom."""
    output_dir = Path(config.output_dir)
    count_tokens = token_counter(config.for_seed(config.seeds[0]))
    # every folder is checked before the first question is asked
    settings = {
        (pair, seed): answer_settings(pair[1], config.for_seed(seed), tasks[pair[0]].data)
        for pair in pairs
        for seed in config.seeds
    }
    files = {
        (pair, seed): SampleFile(seed_folder(output_dir.joinpath(*pair), seed), made, overwrite=config.overwrite)
        for (pair, seed), made in settings.items()
    }
    stored = {pair: Stored([], {str(seed): settings[pair, seed] for seed in config.seeds}) for pair in pairs}
    plan = planner(config)
    shared = Shared(config.for_seed(config.seeds[0]))
    for seed in config.seeds:
        now = config.for_seed(seed)
        if now.checkpoint != shared.config.checkpoint:
            shared = Shared(now)
        for name in config.system_names:
            set_seed(seed)
            system = build_system(name, shared)
            forget_peak()
            for task, loaded in tasks.items():
                total = sum(len(plan(conversation)) for conversation in loaded.selected)
                with progress_bar(f"{task}, {name}, seed {seed}", total) as advance:
                    runner = Runner(config.batch_size, count_tokens, plan, advance, memory_in_use, seed)
                    stored[task, name].answers.extend(runner.run(system, loaded.selected, files[(task, name), seed]))
    return stored


def stored_answers(config: EvalConfig, pair: Pair, task: Task) -> Stored:
    """The answers of an earlier run to the questions that are selected now, and what they were made with.

    Raises:
        UserError: a seed has no answers, or they were made under other settings.
    """
    wanted = {
        "data_sha256": task.data.sha256,
        "probes_sha256": task.data.probes_sha256,
        "retention": config.retention,
    }
    plan = planner(config)
    keys = [blank_sample(ask).key for conversation in task.selected for ask in plan(conversation)]
    stored = Stored([], {})
    for seed in config.seeds:
        folder = seed_folder(Path(config.output_dir).joinpath(*pair), seed)
        samples, stored.settings[str(seed)] = stored_samples(folder, wanted)
        by_key = {sample.key: sample for sample in samples}
        found = [by_key[key] for key in keys if key in by_key]
        if not found:
            raise UserError(f"{folder}: holds no answer to a question that is asked here")
        stored.answers.extend(found)
    return stored
