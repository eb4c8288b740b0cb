"""Who finds the turns that hold the answer? Recall of LoCoMo's and LOCCO's evidence by turn; no answer is written.

    python -m benchmarks.addressing                                       # bm25, dense, hybrid
    python -m benchmarks.addressing --base_model smollm2-135m             # a memory that was never trained
    python -m benchmarks.addressing --checkpoint DIR --ablations --capacity
    python -m benchmarks.addressing --checkpoint DIR --tasks locomo --folds 5
    python -m benchmarks.addressing --checkpoint OTHER_DIR --label NAME   # another training, beside the reference

Each question asks for the best 5, 10 and 20 turns of its conversation, all of which a memory holds here, whatever its own
capacity; ``--capacity`` says what less room costs. Recall is the share of a question's evidence among
them, averaged over the questions that have an answer and whose evidence is known; intervals are 95 % by bootstrap over
conversations. With ``--folds`` the finder of the checkpoint goes on training on the other conversations of each fold.
Writes ``results/addressing.json``, where a run replaces only the figures that it measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.finders import (
    PARTS,
    POLICIES,
    Rankings,
    pruned,
    ranked_by_indexes,
    ranked_by_memory,
    remember,
    without,
)
from benchmarks.machine import machine
from mlmf.config.model import MemorySettings, MLMFConfig
from mlmf.config.parse import run_script
from mlmf.config.training import TrainConfig
from mlmf.data.locomo import CATEGORY_NAMES
from mlmf.data.splits import k_folds
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.evidence import recall_at
from mlmf.evaluation.results import write_json
from mlmf.evaluation.statistics import mean, mean_interval
from mlmf.evaluation.trained import refuse_trained, trained_conversations
from mlmf.model import MLMFModel
from mlmf.paths import cache_dir
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.training.calibration import calibrate
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.run import run_training
from mlmf.types import Conversation, Question

DEPTHS = (5, 10, 20)
SHARES = (1.0, 0.5, 0.25, 0.1)
"""Capacities, as shares of a conversation's nodes."""
ROOM = MemorySettings(c_s=8192, c_m=2**18)
"""Capacities, in nodes and token slots, that hold any conversation whole."""
RESULTS = Path("results/addressing.json")
Row = tuple[Question, Sequence[str]]
"""A question and its ranking."""
Measured = dict[tuple[str, ...], list[Row]]
"""Rankings by where their figures go in the results, but for the task."""


def with_evidence(conversation: Conversation) -> list[Question]:
    """The questions that have an answer and whose evidence turns are all known."""
    return [
        question
        for question in conversation.questions
        if not question.is_trap and question.evidence and question.evidence_status in ("ok", "repaired")
    ]


def figures(rows: Sequence[Row], task: str) -> dict[str, Any]:
    """Recall at each depth with its interval, for LoCoMo by category too."""
    made: dict[str, Any] = {}
    for depth in DEPTHS:
        shares = [(question.conversation_id, recall_at(ids, question.evidence, depth)) for question, ids in rows]
        made[f"recall@{depth}"] = mean(share for _, share in shares)["mean"]
        made[f"recall@{depth}_interval"] = mean_interval(shares, seed=0)
    if task == "locomo":
        for number, name in CATEGORY_NAMES.items():
            of_kind = [(question, ids) for question, ids in rows if question.category == number]
            for depth in (10, 20) if of_kind else ():
                value = mean(recall_at(ids, question.evidence, depth) for question, ids in of_kind)["mean"]
                made[f"{name.replace('-', '_')}_recall@{depth}"] = value
    return {**made, "n_questions": len(rows)}


def by_indexes(conversations: Sequence[Conversation], encoder: Encoder) -> Measured:
    """Rankings of bm25, dense and hybrid."""
    measured: Measured = {}
    for conversation in track(conversations, "finding", transient=True):
        asked = with_evidence(conversation)
        found = ranked_by_indexes(conversation, [question.text for question in asked], encoder)
        for name, rankings in found.items():
            measured.setdefault((name,), []).extend(zip(asked, rankings, strict=True))
    return measured


def by_memory(
    conversations: Sequence[Conversation], model: MLMFModel, batch_size: int, ablations: bool, capacity: bool
) -> Measured:
    """Rankings of a memory of each whole conversation, and if wanted of what is left of it."""
    measured: Measured = {}
    features = FeatureCache(model, cache_dir())
    for conversation in track(conversations, "finding", transient=True):
        asked = with_evidence(conversation)
        queries = [question.text for question in asked]
        state = remember(conversation, model, features)
        found: dict[tuple[str, ...], Rankings] = {("whole",): ranked_by_memory(state, queries, model, batch_size)}
        for part in PARTS if ablations else ():
            with without(model.memory.scorer, part):
                found["ablations", f"no_{part}"] = ranked_by_memory(state, queries, model, batch_size)
        for share, policy in ((share, policy) for share in SHARES for policy in POLICIES) if capacity else ():
            left = pruned(state, policy, share, model)
            found["capacity", f"{share:g}", policy] = ranked_by_memory(left, queries, model, batch_size)
        for place, rankings in found.items():
            measured.setdefault(place, []).extend(zip(asked, rankings, strict=True))
    return measured


def by_folds(
    conversations: Sequence[Conversation], checkpoint: Path, count: int, batch_size: int, output: Path
) -> Measured:
    """Rankings of every conversation by a finder trained on the others of its fold, from ``checkpoint`` on."""
    rows: list[Row] = []
    for number, fold in enumerate(k_folds([one.id for one in conversations], count)):
        config = TrainConfig(
            task="locomo", conversations=list(fold.train), generate=False, init_from=str(checkpoint),
            num_train_epochs=1, per_device_train_batch_size=32, weight_decay=1e-2,
            warmup_steps=5, save_steps=0, output_dir=str(output / f"fold-{number}"), overwrite_output_dir=True,
        )  # fmt: skip
        model = _opened(run_training(config))  # type: ignore[arg-type]  # no dry run
        tested = [one for one in conversations if one.id in fold.test]
        rows += by_memory(tested, model, batch_size, ablations=False, capacity=False)["whole",]
    return {("whole",): rows}


def places(
    measured: Measured, task: str, name: str | None, label: str | None = None
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Where in the results the figures of each ranking go; ``name`` is that of the whole memory, ``label`` of another one."""
    for place, rows in measured.items():
        if place == ("whole",):
            assert name is not None
            where: tuple[str, ...] = (name,) if name.startswith(task) else (name, task)
        else:
            where = (place[0], task, *place[1:])
        yield (where if label is None else ("trainings", label, *where)), figures(rows, task)


def read_stored() -> dict[str, Any]:
    """What was measured so far.

    Raises:
        UserError: the file is damaged.
    """
    try:
        stored: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    except ValueError as error:
        raise UserError(
            f"{RESULTS} is damaged: {error}; take it from git again, or remove it to measure all anew"
        ) from error
    return stored


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.addressing", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--tasks", nargs="+", choices=("locomo", "locco"), default=["locomo", "locco"])
    parser.add_argument("--split", choices=("train", "test"), default="test", help="of locco; train is not written")
    parser.add_argument("--conversations", nargs="+", help="ids; what is measured on some is not written")
    parser.add_argument("--encoder", default="all-minilm-l6-v2", help="known name, folder or Hugging Face id")
    parser.add_argument("--checkpoint", type=Path, help="measure this memory in place of the indexes")
    parser.add_argument("--base_model", help="measure an untrained memory around this model in place of the indexes")
    parser.add_argument("--batch_size", type=int, default=16, help="questions put to a memory at once")
    parser.add_argument("--ablations", action="store_true", help="also without each ingredient of the find score")
    parser.add_argument("--capacity", action="store_true", help="also with a half to a tenth of the nodes")
    parser.add_argument("--folds", type=int, help="train the checkpoint's finder on LoCoMo by folds of conversations")
    parser.add_argument(
        "--label", help="keep the figures of this --checkpoint under trainings, not as the reference's"
    )
    parser.add_argument("--output", type=Path, default=Path("outputs/addressing"), help="where folds are trained")
    arguments = parser.parse_args()
    model = _model(arguments)
    encoder = SentenceEncoder(arguments.encoder) if model is None else None
    stored = read_stored()
    table = Table("figures", *(f"recall@{depth}" for depth in DEPTHS), "questions")
    for task in arguments.tasks:
        chosen = _conversations(task, arguments)
        if arguments.checkpoint is not None:
            refuse_trained(arguments.checkpoint, task, chosen, trained_conversations(arguments.checkpoint, task) or ())
        name = None
        if encoder is not None:
            measured = by_indexes(chosen, encoder)
        elif arguments.folds is not None:
            measured, name = (
                by_folds(chosen, arguments.checkpoint, arguments.folds, arguments.batch_size, arguments.output),
                "locomo_folds",
            )
        else:
            assert model is not None  # _model gives one where there is no encoder
            measured = by_memory(chosen, model, arguments.batch_size, arguments.ablations, arguments.capacity)
            trained = {"locomo": "locomo_zero_shot", "locco": "locco"}
            name = "untrained" if arguments.base_model else trained[task]
        for place, made in places(measured, task, name, arguments.label):
            table.add_row(" ".join(place), *(f"{made[f'recall@{d}']:.3f}" for d in DEPTHS), str(made["n_questions"]))
            made["model"] = _source(arguments)
            made["created_at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
            folder = stored
            for step in place[:-1]:
                folder = folder.setdefault(step, {})
            folder[place[-1]] = made
    Console().print(table)
    if arguments.conversations is None and arguments.split == "test":
        write_json(RESULTS, {**stored, "machine": machine()})
    return 0


def _conversations(task: str, arguments: argparse.Namespace) -> list[Conversation]:
    data = load_task(task, split=arguments.split if task == "locco" else None)
    chosen = [c for c in data.conversations if c.id in (arguments.conversations or [c.id])]
    if not chosen:
        raise UserError(f"--conversations {' '.join(arguments.conversations)}: {task} has none of them")
    return chosen


def _model(arguments: argparse.Namespace) -> MLMFModel | None:
    checkpoint, base_model = arguments.checkpoint, arguments.base_model
    if checkpoint is not None and base_model is not None:
        raise UserError("--checkpoint and --base_model: give one of them")
    if checkpoint is not None and not checkpoint.is_dir():
        raise UserError(f"--checkpoint {checkpoint}: no such folder; train.py prints the folder it saves to")
    if arguments.folds is not None and (checkpoint is None or arguments.tasks != ["locomo"]):
        raise UserError("--folds goes on training a --checkpoint on LoCoMo: give both, and --tasks locomo")
    if arguments.label is not None and checkpoint is None:
        raise UserError("--label names another training: give its --checkpoint")
    if checkpoint is None and base_model is None:
        if arguments.ablations or arguments.capacity:
            raise UserError("--ablations and --capacity are of a memory: give --checkpoint or --base_model")
        return None
    return _opened(checkpoint) if checkpoint else _untrained(base_model)


def _opened(checkpoint: Path) -> MLMFModel:
    model = MLMFModel.from_pretrained(checkpoint, memory=ROOM)
    if model.memory.semantic is None:
        raise UserError("this model has no semantic memory: it finds nothing")
    return model.eval()


def _untrained(base_model: str) -> MLMFModel:
    """As a training would start from it: statistics of keys are those of LOCCO's training users."""
    model = MLMFModel.from_base(base_model, replace(MLMFConfig(), **ROOM.changed))
    users = load_task("locco", split="train").conversations
    calibrate(model, [session for user in users for session in user.sessions], cache_dir())
    return model.eval()


def _source(arguments: argparse.Namespace) -> str:
    if arguments.checkpoint is not None:
        return "/".join(arguments.checkpoint.resolve().parts[-2:])
    return str(arguments.base_model or arguments.encoder)


if __name__ == "__main__":
    run_script(main)
