"""Does the model read its memory? LOCCO's test users, the evidence session in memory, the question alone in the prompt.

    python -m benchmarks.read --checkpoint outputs/demo/final

Finding is taken out of the question: memory holds the one session that answers, and whatever is answered comes from
its tensors. The control is the same checkpoint with its memory empty. Writes ``results/read.json``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from mlmf.config.parse import parse_config, run_script
from mlmf.config.training import TrainConfig
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.metrics import token_f1
from mlmf.evaluation.overlap import exact_match
from mlmf.evaluation.results import write_json
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.training.run import run_training
from mlmf.types import Question, Session

DEMO_CONFIGS = (Path("configs/train/demo_cloze.yaml"), Path("configs/train/demo.yaml"))
DEMO_CHECKPOINT = Path("outputs/demo/final")
RESULTS = Path("results/read.json")


def evidence() -> list[tuple[Question, Session]]:
    """Every answerable question about the test users, with the session that answers it."""
    return [
        (question, conversation.sessions[question.session])
        for conversation in load_task("locco", split="test").conversations
        for question in conversation.questions
        if not question.is_trap and question.session is not None
    ]


def batches(asked: Sequence[tuple[Question, Session]], size: int) -> Iterator[tuple[list[Question], list[Session]]]:
    """Questions and their sessions, ``size`` at a time."""
    for start in range(0, len(asked), size):
        questions, sessions = zip(*asked[start : start + size], strict=True)
        yield list(questions), list(sessions)


def measure(model: MLMFModel, asked: Sequence[tuple[Question, Session]], batch_size: int = 32) -> dict[str, float]:
    """Token F1 and exact match, each from 0 to 1, with the memory and with an empty one."""
    golds = [question.answer or "" for question, _ in asked]
    scores: dict[str, float] = {"n_questions": len(asked)}
    answers: dict[str, list[str]] = {"on": [], "off": []}
    began = time.perf_counter()
    for questions, sessions in track(list(batches(asked, batch_size)), "asking", transient=True):
        queries = [question.query for question in questions]
        empty = model.init_state(len(queries))
        memories: dict[str, MemoryState] = {"on": model.remember(sessions, empty), "off": empty}
        for name, state in memories.items():
            answers[name] += [answer.text for answer in model.answer_all(queries, state)]
    for name, texts in answers.items():
        scores[f"f1_memory_{name}"] = round(mean(map(token_f1, texts, golds)), 4)
        scores[f"exact_match_memory_{name}"] = round(mean(map(exact_match, texts, golds)), 4)
    return scores | {"seconds": round(time.perf_counter() - began, 1)}


def open_checkpoint(folder: Path) -> MLMFModel:
    """Load a checkpoint; the demo's own is trained first where it is missing.

    Raises:
        UserError: no checkpoint at another folder than the demo's.
    """
    if not folder.exists() and folder == DEMO_CHECKPOINT:
        for config in DEMO_CONFIGS:
            run_training(parse_config(TrainConfig, ["--config", str(config)], prog="train.py", description=""))
    if not folder.is_dir():
        raise UserError(
            f"--checkpoint {folder}: no such folder. Train one with train.py, or leave it out for the demo's"
        )
    return MLMFModel.from_pretrained(folder)


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--checkpoint", type=Path, default=DEMO_CHECKPOINT, help="folder that train.py wrote")
    parser.add_argument("--batch_size", type=int, default=32, help="questions answered at once")
    parser.add_argument("--limit", type=int, help="ask the first questions only; nothing is written")
    arguments = parser.parse_args()
    asked = evidence()[: arguments.limit]
    model = open_checkpoint(arguments.checkpoint)
    scores = measure(model, asked, arguments.batch_size)
    table = Table(
        "memory", "token F1", "exact match", title=f"{len(asked)} questions, the question alone in the prompt"
    )
    for name in ("on", "off"):
        table.add_row(name, f"{scores[f'f1_memory_{name}']:.3f}", f"{scores[f'exact_match_memory_{name}']:.3f}")
    Console().print(table)
    if arguments.limit is None:
        write_json(
            RESULTS,
            {
                **scores,
                "checkpoint": "/".join(arguments.checkpoint.resolve().parts[-2:]),
                "base_model": model.config.base_model,
                "dtype": str(model.lm.dtype).removeprefix("torch."),
                "machine": machine(),
                "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            },
        )
    return 0


if __name__ == "__main__":
    run_script(main)
