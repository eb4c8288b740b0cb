"""What is each part of a text system worth? Systems with a setting changed, on the same questions, as a file lists them.

    python -m benchmarks.variants --config configs/systems/cognis_weights.yaml
    python -m benchmarks.variants --config configs/systems/cogmem_parts.yaml --evaluation.conversations conv-26

Evidence recall is the share of a question's evidence among the turns whose lines fit into the budget, over the questions
that have an answer and whose evidence is known. With ``answers: true`` the model answers them as well and the task's own F1
is taken. Intervals are 95 % by bootstrap over conversations. A fact, note or insight counts as a look at its turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.addressing import with_evidence
from benchmarks.machine import machine
from mlmf.base_model import load_tokenizer
from mlmf.config.evaluation import EvalConfig
from mlmf.config.parse import parse_config, run_script
from mlmf.config.sweep import with_settings
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.evidence import recall_at
from mlmf.evaluation.metrics import main_metric, measure
from mlmf.evaluation.results import write_json
from mlmf.evaluation.statistics import mean_interval
from mlmf.llm.base import Completion, LanguageModel
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.systems.build import Shared, build_system
from mlmf.systems.text import Answering, TextSystem
from mlmf.types import Conversation, Question


@dataclass
class VariantsConfig:
    """One comparison: a system in several forms, and others beside it."""

    evaluation: EvalConfig = field(default_factory=EvalConfig)
    """Settings that all share, as for evaluate.py; its systems stand beside the variants, its tasks name the questions, and
    its limit is one of questions a conversation."""
    variant_of: str = "cognis"
    """The text system that is changed."""
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name of the variant the settings of evaluate.py that it has changed, such as cognis.vector_weight, in an order in
    which each may be changed."""
    answers: bool = False
    """Let base_model answer, and score F1; off, only the search is scored, which needs no model but its tokenizer."""
    output: str = "results/variants.json"
    """File that is written."""

    def __post_init__(self) -> None:
        """Refuse variants that cannot be made, before anything is loaded."""
        for name in self.variants:
            self.of(name)

    def of(self, name: str) -> EvalConfig:
        """The settings of a variant.

        Raises:
            UserError: it changes a setting that there is not, or to a value that may not be.
        """
        return with_settings(self.evaluation, self.variants[name])


class CountedTokens(LanguageModel):
    """Counts tokens for the budget and never answers."""

    def __init__(self, base_model: str) -> None:
        """Load a tokenizer."""
        self._tokenizer = load_tokenizer(base_model)

    @property
    def context_window(self) -> int:
        """More than any budget."""
        return 1_000_000

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self._tokenizer(text, add_special_tokens=False).input_ids)

    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Nothing, to every prompt."""
        return [Completion("", self.count_tokens(prompt), 0) for prompt in prompts]


class Remembered:
    """An encoder that encodes a text once, however many variants read it."""

    def __init__(self, encoder: Encoder) -> None:
        """Wrap an encoder."""
        self._encoder = encoder
        self._known: dict[tuple[str, str], FloatArray] = {}

    def encode_documents(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        return self._once("document", texts)

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        return self._once("query", texts)

    def _once(self, kind: str, texts: Sequence[str]) -> FloatArray:
        new = [text for text in dict.fromkeys(texts) if (kind, text) not in self._known]
        if new:
            encode = self._encoder.encode_documents if kind == "document" else self._encoder.encode_queries
            self._known.update(((kind, text), row) for text, row in zip(new, encode(new), strict=True))
        return np.stack([self._known[kind, text] for text in texts])


@dataclass(frozen=True, slots=True)
class Row:
    """One question: how much of its evidence was shown, and what the answer scored."""

    conversation: str
    recall: float
    f1: float


def rows(
    system: TextSystem, conversations: Sequence[Conversation], task: str, limit: int | None, batch_size: int
) -> Iterator[Row]:
    """Ask a system the questions whose evidence is known."""
    for conversation in conversations:
        system.reset()
        for session in conversation.sessions:
            system.observe(session)
        asked = iter(with_evidence(conversation)[:limit])
        while batch := list(islice(asked, batch_size)):
            for question, answer in zip(batch, system.answer([one.query for one in batch]), strict=True):
                recall = recall_at(answer.recalled, question.evidence, len(answer.recalled))
                yield Row(conversation.id, recall, _f1(task, question, answer.text, abstained=answer.abstained))


def _f1(task: str, question: Question, text: str, *, abstained: bool) -> float:
    return measure(task, text, question, abstained=abstained)[main_metric(task)]


def figures(found: Sequence[Row], answers: bool) -> dict[str, Any]:
    """Means with their intervals, and how many questions they are over."""
    figure: dict[str, Any] = {"n": len(found)}
    for name in ("recall", "f1") if answers else ("recall",):
        values = [(row.conversation, float(getattr(row, name))) for row in found]
        figure |= {
            name: float(np.mean([value for _, value in values])),
            f"{name}_interval": mean_interval(values, seed=0),
        }
    return figure


def systems(config: VariantsConfig) -> Iterator[tuple[str, TextSystem]]:
    """The systems that stand beside, then every variant; all with one encoder and one answer model."""
    base = Shared(config.evaluation)
    encoder = Remembered(SentenceEncoder(config.evaluation.encoder, device=config.evaluation.device))
    answering = base.answering if config.answers else _counting(config.evaluation)
    named = [(name, name, config.evaluation) for name in config.evaluation.system_names]
    named += [(name, config.variant_of, config.of(name)) for name in config.variants]
    for name, kind, settings in named:
        shared = Shared(settings)
        shared.encoder, shared.answering = encoder, answering  # type: ignore[assignment]
        system = build_system(kind, shared)
        if not isinstance(system, TextSystem):
            raise UserError(f"{kind}: no text system, so there are no lines of its own to compare")
        yield name, system


def _counting(config: EvalConfig) -> Answering:
    return Answering(CountedTokens(config.base_model), 1, config.window_tokens)


def show(task: str, measured: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    """One row per system."""
    names = [name for name in ("recall", "f1") if any(name in row for row in measured.values())]
    table = Table(task, *(column for name in names for column in (name, "95 % interval")), "questions")
    for name, row in measured.items():
        cells = []
        for figure in names:
            interval = row[f"{figure}_interval"]
            cells += [f"{row[figure]:.3f}", "..".join(f"{end:.2f}" for end in interval) if interval else "-"]
        table.add_row(name, *cells, str(row["n"]))
    console.print(table)


def main() -> int:
    """Parse, measure, print and write."""
    logging.getLogger("mlmf").setLevel(logging.WARNING)
    config = parse_config(
        VariantsConfig, None, prog="python -m benchmarks.variants", description=(__doc__ or "").split("\n\n")[0]
    )
    evaluation, console = config.evaluation, Console(width=120)
    results: dict[str, dict[str, Any]] = {}
    for task in evaluation.task_names:
        wanted = evaluation.conversations
        data = load_task(task, data_file=evaluation.data_file, probes=evaluation.probes, split=evaluation.split)
        chosen = [one for one in data.conversations if wanted is None or one.id in wanted]
        if not any(with_evidence(conversation) for conversation in chosen):
            raise UserError(f"task {task}: no question whose evidence is known, in conversations {wanted or 'at all'}")
        results[task] = {}
        for name, system in track(list(systems(config)), task, console=console, transient=True):
            found = list(rows(system, chosen, task, evaluation.limit, evaluation.batch_size))
            results[task][name] = figures(found, config.answers)
        show(task, results[task], console)
    facts = {
        name: getattr(evaluation, name)
        for name in ("conversations", "limit", "encoder", "base_model", "window_tokens", "retrieved_turns")
    }
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    written = {"tasks": results, "variants": config.variants, "answers": config.answers, **facts}
    write_json(Path(config.output), written | {"machine": machine(), "created_at": created})
    return 0


if __name__ == "__main__":
    run_script(main)
