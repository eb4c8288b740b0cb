"""Ask every system every question under every seed, or find the answers that an earlier run left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import set_seed

from mlmf.config.evaluation import EvalConfig
from mlmf.config.variants import MLMF
from mlmf.data.tasks import LoadedData
from mlmf.errors import UserError
from mlmf.evaluation.folder import seed_folder
from mlmf.evaluation.folds import tested_in
from mlmf.evaluation.keys import AnswerKey, answer_keys
from mlmf.evaluation.plan import Planner, ask_after_each_period, ask_once
from mlmf.evaluation.progress import progress_bar
from mlmf.evaluation.provenance import answer_settings, forget_peak, memory_in_use, token_counter
from mlmf.evaluation.runner import Runner, blank_sample
from mlmf.evaluation.samples import Sample, SampleFile, stored_samples
from mlmf.evaluation.selection import load_from_config, select_questions
from mlmf.systems.base import System
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
    tested: list[tuple[str, ...]] | None = None
    """Ids of the conversations of each fold; ``None`` without folds."""

    def of_fold(self, fold: int | None) -> tuple[Conversation, ...]:
        """The conversations to ask the checkpoint of a fold about; all of them for ``None``."""
        wanted = None if fold is None or self.tested is None else self.tested[fold]
        return tuple(one for one in self.selected if wanted is None or one.id in wanted)


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
    return Task(data, selected, answer_keys(config.key, name, selected, config.audit_file), tested_in(config, data))


def planner(config: EvalConfig) -> Planner:
    """When the questions of a run are asked."""
    return ask_once if config.retention is None else ask_after_each_period(config.retention)


def answer_all(config: EvalConfig, pairs: Sequence[Pair], tasks: dict[str, Task]) -> dict[Pair, Stored]:
    """Ask everything that has no answer yet, seed by seed and system by system, so that models are loaded seldom."""
    output_dir = Path(config.output_dir)
    count_tokens = token_counter(config.parts(MLMF, config.seeds[0])[0][1])
    # every folder is checked before the first question is asked
    settings = {
        (pair, seed): answer_settings(pair[1], config, seed, tasks[pair[0]].data)
        for pair in pairs
        for seed in config.seeds
    }
    files = {
        (pair, seed): SampleFile(seed_folder(output_dir.joinpath(*pair), seed), made, overwrite=config.overwrite)
        for (pair, seed), made in settings.items()
    }
    stored = {pair: Stored([], {str(seed): settings[pair, seed] for seed in config.seeds}) for pair in pairs}
    plan = planner(config)
    shared: Shared | None = None
    system: System | None = None
    for seed in config.seeds:
        for name in config.system_names:
            for fold, part in config.parts(name, seed):
                if shared is None or part.checkpoint != shared.config.checkpoint:
                    system = shared = None  # lets go of the models before others are loaded
                    shared = Shared(part)
                set_seed(seed)
                system = build_system(name, shared)
                forget_peak()
                for task, loaded in tasks.items():
                    asked = loaded.of_fold(fold)
                    total = sum(len(plan(conversation)) for conversation in asked)
                    title = f"{task}, {name}, seed {seed}" + ("" if fold is None else f", fold {fold}")
                    with progress_bar(title, total) as advance:
                        runner = Runner(config.batch_size, count_tokens, plan, advance, memory_in_use, seed)
                        stored[task, name].answers.extend(runner.run(system, asked, files[(task, name), seed]))
    for (task, _), found in stored.items():
        place = {one.id: number for number, one in enumerate(tasks[task].selected)}
        # fold by fold they were asked; results have them conversation by conversation, as they have without folds
        found.answers.sort(key=lambda one: (config.seeds.index(one.seed), place[one.conversation_id]))
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
