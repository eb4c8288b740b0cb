"""What does each stage of Cognis find? Recall of the evidence within the token budget; no answer is written.

    python -m benchmarks.cognis_ablation --tasks locomo locco
    python -m benchmarks.cognis_ablation --tasks locomo --conversations conv-30 conv-42 --only weights

Beside Cognis stand bm25 and hybrid, and each stage switched off in turn; ``weights`` is the sweep of the paper's Table 7, from
BM25 alone to vectors alone. Recall is the share of a question's evidence among the turns whose lines fit into the
budget, over the questions that have an answer and whose evidence is known. Writes ``results/cognis_ablation.json``.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.addressing import with_evidence
from benchmarks.machine import machine
from mlmf.base_model import load_tokenizer
from mlmf.config.cognis import CognisSettings
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.evidence import recall_at
from mlmf.evaluation.results import write_json
from mlmf.evaluation.statistics import mean_interval
from mlmf.llm.base import Completion, LanguageModel
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.dense import DenseIndex
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.retrieval.fusion import HybridIndex
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.system import CognisSystem
from mlmf.systems.retrieved import RetrievedTurns
from mlmf.systems.text import Answering, TextSystem
from mlmf.types import Conversation

RESULTS = Path("results/cognis_ablation.json")
WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
STAGES = ("analysis", "vectors", "shortlist", "words", "messages", "temporal", "versions")
Variants = dict[str, Callable[[], TextSystem]]


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
        """Nothing is answered here."""
        raise NotImplementedError("this benchmark asks for no answers")


class Remembered:
    """An encoder that encodes a text once, however many variants read it."""

    def __init__(self, encoder: Encoder) -> None:
        """Wrap an encoder that treats queries as documents."""
        self._encoder = encoder
        self._known: dict[str, FloatArray] = {}

    def encode_documents(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._encoder.encode_documents(new), strict=True))
        return np.stack([self._known[text] for text in texts])

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        return self._encoder.encode_queries(texts)


def variants(encoder: Encoder, answering: Answering, turns: int, only: Sequence[str]) -> Variants:
    """Systems by name: the baselines, Cognis, and Cognis with one thing changed."""

    def cognis(**changes: Any) -> TextSystem:
        settings = CognisSettings(**changes)
        return CognisSystem(answering, CognisMemory(encoder, encoder_name="encoder", settings=settings), turns=turns)

    def hybrid() -> HybridIndex:
        return HybridIndex([BM25Index(), DenseIndex(encoder)], [0.5, 0.5])

    found: Variants = {
        "bm25": lambda: RetrievedTurns("bm25", answering, BM25Index, turns=turns),
        "hybrid": lambda: RetrievedTurns("hybrid", answering, hybrid, turns=turns),
        "cognis": cognis,
    }
    if "stages" in only:
        found |= {f"cognis without {stage}": partial(cognis, **{f"use_{stage}": False}) for stage in STAGES}
        found["cognis without entities"] = partial(cognis, entity_weight=0.0)
    if "weights" in only:
        names = {weight: f"cognis, vectors {weight:.0%}, BM25 {1 - weight:.0%}" for weight in WEIGHTS}
        found |= {name: partial(cognis, vector_weight=weight) for weight, name in names.items()}
    return found


def recalls(system: TextSystem, conversations: Sequence[Conversation]) -> list[tuple[str, float]]:
    """For every question its conversation and the recall of its evidence."""
    found = []
    for conversation in conversations:
        system.reset()
        for session in conversation.sessions:
            system.observe(session)
        asked = with_evidence(conversation)
        shown = system.recall([question.query for question in asked], 1_000_000)
        for question, lines in zip(asked, shown, strict=True):
            recalled = list(dict.fromkeys(turn_id for line in lines for turn_id in line.turn_ids))
            found.append((conversation.id, recall_at(recalled, question.evidence, len(recalled))))
    return found


def show(task: str, figures: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    """One row per variant."""
    table = Table(task, "evidence recall", "95 % interval", "questions")
    for name, row in figures.items():
        interval = "..".join(f"{end:.2f}" for end in row["interval"]) if row["interval"] else "-"
        table.add_row(name, f"{row['recall']:.3f}", interval, str(row["n"]))
    console.print(table)


def main() -> int:
    """Parse, measure, print and write."""
    logging.getLogger("mlmf").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cognis_ablation", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--tasks", nargs="+", default=["locomo", "locco"], help="tasks of evaluate.py with evidence")
    parser.add_argument("--conversations", nargs="+", help="ids; all by default")
    parser.add_argument("--only", nargs="+", default=["stages", "weights"], choices=["stages", "weights"])
    parser.add_argument("--encoder", default="all-minilm-l6-v2", help="as in evaluate.py")
    parser.add_argument("--base_model", default="smollm2-135m", help="whose tokens the budget counts")
    parser.add_argument("--window_tokens", type=int, default=400, help="the budget")
    parser.add_argument("--retrieved_turns", type=int, default=20, help="the most memories that are shown")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file that is written")
    arguments = parser.parse_args()
    console = Console()
    answering = Answering(CountedTokens(arguments.base_model), 1, arguments.window_tokens)
    encoder = Remembered(SentenceEncoder(arguments.encoder))
    built = variants(encoder, answering, arguments.retrieved_turns, arguments.only)
    results: dict[str, dict[str, Any]] = {}
    for task in arguments.tasks:
        wanted = arguments.conversations
        chosen = [one for one in load_task(task).conversations if wanted is None or one.id in wanted]
        if not any(with_evidence(conversation) for conversation in chosen):
            raise UserError(f"task {task}: no question whose evidence is known, in conversations {wanted or 'at all'}")
        results[task] = {}
        for name, build in track(built.items(), task, console=console, transient=True):
            rows = recalls(build(), chosen)
            recall = float(np.mean([one for _, one in rows]))
            results[task][name] = {"recall": recall, "interval": mean_interval(rows, seed=0), "n": len(rows)}
        show(task, results[task], console)
    facts = {name: getattr(arguments, name) for name in ("conversations", "encoder", "base_model", "window_tokens")}
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_json(arguments.output, {"recall": results, **facts, "machine": machine(), "created_at": created})
    return 0


if __name__ == "__main__":
    run_script(main)
