"""Which systems find the turns that hold the answer? Recall of LoCoMo's and LOCCO's evidence; no answer is written.

    python -m benchmarks.finding
    python -m benchmarks.finding --checkpoint outputs/demo/final

Every turn of a conversation is a text, each question asks for the best 5, 10 and 20. Recall is the share of a question's
evidence turns among them, averaged over the questions that have an answer and whose evidence is known. Writes
``results/finding.json``, where a run replaces only the figures of the tasks and systems that it measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.model import MLMFModel
from mlmf.retrieval.base import Hit
from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.dense import DenseIndex
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.retrieval.fusion import HybridIndex
from mlmf.systems.text import searchable
from mlmf.types import Conversation, Query, Question

DEPTHS = (5, 10, 20)
RESULTS = Path("results/finding.json")
Rankings = dict[str, list[Sequence[str]]]


def with_evidence(conversation: Conversation) -> list[Question]:
    """The questions that have an answer and whose evidence turns are all known."""
    return [
        question
        for question in conversation.questions
        if not question.is_trap and question.evidence and question.evidence_status in ("ok", "repaired")
    ]


def ranked_by_indexes(conversation: Conversation, queries: Sequence[str], encoder: Encoder) -> Rankings:
    """For each of bm25, dense and hybrid, and each query, the ids of the best turns, best first."""
    bm25, dense = BM25Index(), DenseIndex(encoder)
    hybrid = HybridIndex([bm25, dense], [0.5, 0.5])
    hybrid.add([searchable(turn) for turn in conversation.turns])

    def ids(hits: Sequence[Hit]) -> list[str]:
        return [conversation.turns[hit.position].id for hit in hits]

    indexes = {"bm25": bm25, "dense": dense, "hybrid": hybrid}
    return {name: [ids(hits) for hits in index.search(queries, max(DEPTHS))] for name, index in indexes.items()}


def ranked_by_memory(
    conversation: Conversation, queries: Sequence[str], model: MLMFModel, batch_size: int
) -> Rankings:
    """The ids of the turns that a memory of the whole conversation finds, best first."""
    state = model.init_state()
    for session in conversation.sessions:
        state = model.remember([session], state)
    found: list[Sequence[str]] = []
    for start in range(0, len(queries), batch_size):
        asked = [Query(text) for text in queries[start : start + batch_size]]
        found += [answer.recalled for answer in model.answer_all(asked, state, max_new_tokens=1)]
    return {"mlmf": found}


def recall_at(rankings: Sequence[Sequence[str]], questions: Sequence[Question]) -> dict[str, float]:
    """Mean share of a question's evidence among the first 5, 10 and 20 of its ranking."""

    def share(ranking: Sequence[str], question: Question, depth: int) -> float:
        evidence = set(question.evidence)
        return len(evidence.intersection(ranking[:depth])) / len(evidence)

    pairs = list(zip(rankings, questions, strict=True))
    return {str(depth): round(mean(share(*pair, depth) for pair in pairs), 4) for depth in DEPTHS}


def measure(
    conversations: Sequence[Conversation], encoder: Encoder | None, model: MLMFModel | None, batch_size: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the recall of each system: those of ``encoder``, and the memory of ``model``."""
    rankings: Rankings = {}
    questions: list[Question] = []
    for conversation in track(conversations, "finding", transient=True):
        asked = with_evidence(conversation)
        queries = [question.text for question in asked]
        questions += asked
        found: Rankings = {}
        if encoder is not None:
            found |= ranked_by_indexes(conversation, queries, encoder)
        if model is not None:
            found |= ranked_by_memory(conversation, queries, model, batch_size)
        for name, lists in found.items():
            rankings.setdefault(name, []).extend(lists)
    for name, lists in rankings.items():
        yield name, {"recall": recall_at(lists, questions), "n_questions": len(questions)}


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finding", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=("locomo", "locco"), default=["locomo", "locco"])
    parser.add_argument(
        "--split", choices=("train", "test"), default="test", help="users of locco; train is not written"
    )
    parser.add_argument("--conversations", nargs="+", help="ids; what is measured on some is not written")
    parser.add_argument("--encoder", default="all-minilm-l6-v2", help="known name, folder or Hugging Face id")
    parser.add_argument("--checkpoint", type=Path, help="measure this memory in place of the indexes")
    parser.add_argument("--base_model", help="measure an untrained memory around this model in place of the indexes")
    parser.add_argument("--batch_size", type=int, default=16, help="questions put to a memory at once")
    arguments = parser.parse_args()
    model = _open(arguments.checkpoint, arguments.base_model)
    encoder = SentenceEncoder(arguments.encoder) if model is None else None
    stored: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    table = Table("task", "system", *(f"recall@{depth}" for depth in DEPTHS), "questions")
    for task in arguments.tasks:
        data = load_task(task, split=arguments.split if task == "locco" else None)
        chosen = [c for c in data.conversations if c.id in (arguments.conversations or [c.id])]
        if not chosen:
            raise UserError(f"--conversations {' '.join(arguments.conversations)}: {task} has none of them")
        began = time.perf_counter()
        for name, figures in measure(chosen, encoder, model, arguments.batch_size):
            if arguments.base_model:
                name = f"{name} untrained"
            table.add_row(
                task, name, *(f"{figures['recall'][str(d)]:.3f}" for d in DEPTHS), str(figures["n_questions"])
            )
            figures["model"] = arguments.base_model or (
                "/".join(arguments.checkpoint.resolve().parts[-2:]) if arguments.checkpoint else arguments.encoder
            )
            figures["created_at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
            figures["seconds_of_all"] = round(time.perf_counter() - began, 1)
            stored.setdefault(task, {})[name] = figures
    Console().print(table)
    if arguments.conversations is None and arguments.split == "test":
        write_json(RESULTS, {**stored, "machine": machine()})
    return 0


def _open(checkpoint: Path | None, base_model: str | None) -> MLMFModel | None:
    if checkpoint is None and base_model is None:
        return None
    if checkpoint is not None and base_model is not None:
        raise UserError("--checkpoint and --base_model: give one of them")
    if checkpoint is not None and not checkpoint.is_dir():
        raise UserError(f"--checkpoint {checkpoint}: no such folder; train.py prints the folder it saves to")
    model = MLMFModel.from_pretrained(checkpoint) if checkpoint else MLMFModel.from_base(str(base_model))
    model.config.recall_nodes = max(DEPTHS)
    return model.eval()


if __name__ == "__main__":
    run_script(main)
