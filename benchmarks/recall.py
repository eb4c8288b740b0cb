"""Does the memory learn to carry facts across sessions? ``make recall-benchmark``; figures go to results/recall.json.

``python -m benchmarks.recall`` trains and scores every variant from three seeds; ``--variants full --seeds 0`` is one run,
whose page would replace that of all: give it a ``--report_dir`` of its own. Runs that ``--output_dir`` holds already are not done again. ``--report_only`` makes docs/recall.md and results/recall.json
from the runs there are.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.recall_baselines import ContextLearner
from benchmarks.recall_data import word_tokenizer
from benchmarks.recall_learner import Learner
from benchmarks.recall_model import LossWeights, MemoryLearner, default_config
from benchmarks.recall_peers import PEERS
from benchmarks.recall_report import SETTINGS, write_report
from benchmarks.recall_train import score, train
from mlmf.config.parse import run_script
from mlmf.errors import UserError, unknown_name
from mlmf.paths import atomic_write_text
from mlmf.training.run_folder import git_commit

ROOT = Path(__file__).resolve().parents[1]


def _memory(weights: LossWeights | None = None, **changes: object) -> Callable[[], Learner]:
    config, weights = default_config(**changes), weights or LossWeights()
    return lambda: MemoryLearner(word_tokenizer(), config, weights)


VARIANTS: dict[str, Callable[[], Learner]] = {
    "full": _memory(),
    "no_versions": _memory(versions=False),
    "no_nothing": _memory(nothing=False),
    "no_semantic": _memory(semantic=False),
    "no_episodic": _memory(episodic=False),
    "no_working": _memory(working=False),
    "no_gating": _memory(gating=False),
    "no_entropy": _memory(entropy=False),
    "alpha_scalar": _memory(alpha_mode="scalar"),
    "lambda_0": _memory(LossWeights(retention=0.0)),
    "no_evidence_loss": _memory(LossWeights(evidence=0.0)),
    "no_memory": lambda: ContextLearner(word_tokenizer(), has_context=False),
    "full_context": lambda: ContextLearner(word_tokenizer(), has_context=True),
    **{f"peer:{name}": build for name, build in PEERS.items()},
}


def main() -> int:
    """Train and score the chosen variants, one run after another, then write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=main.__doc__)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), metavar="NAME", help=" ".join(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=300, help="optimiser steps, the same for every variant")
    parser.add_argument("--learning_rate", type=float, default=3e-3, help="peak")
    parser.add_argument("--sessions_in_batch", type=int, default=16)
    parser.add_argument("--questions_in_batch", type=int, default=48)
    parser.add_argument("--test_questions", type=int, default=60, help="per category and distance")
    parser.add_argument(
        "--output_dir",
        type=Path,
        default=ROOT / "outputs" / "recall",
        help="one file a run; a run found there is kept, and one with other settings is an error",
    )
    parser.add_argument("--report_dir", type=Path, default=ROOT, help="docs/ and results/ are written in it")
    parser.add_argument("--report_only", action="store_true", help="train nothing")
    args = parser.parse_args()
    for name in args.variants:
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS)
    for seed in () if args.report_only else args.seeds:
        for name in args.variants:
            run(name, seed, args)
    write_report(args.output_dir, args.report_dir, list(VARIANTS))
    return 0


def run(name: str, seed: int, args: argparse.Namespace) -> None:
    """Train one variant from one seed, score it and write the figures of the run, unless they are there already.

    Raises:
        UserError: they are there from a run with other settings.
    """
    settings = {
        "steps": args.steps,
        "batch": {"sessions": args.sessions_in_batch, "questions": args.questions_in_batch},
        "learning_rate": args.learning_rate,
        "test_questions": args.test_questions,
    }
    path = args.output_dir / f"{name.replace(':', '-')}.seed{seed}.json"
    if path.is_file():
        found = json.loads(path.read_text())
        for key in SETTINGS:
            if found[key] != settings[key]:
                raise UserError(
                    f"{path}: {key} is {found[key]} there and {settings[key]} here: give another --output_dir, or delete it"
                )
        print(f"{name}, seed {seed}: kept {path}", flush=True)
        return
    random.seed(seed)
    torch.manual_seed(seed)
    learner = VARIANTS[name]()
    n_parameters = sum(one.numel() for one in learner.parameters() if one.requires_grad)
    print(f"{name}, seed {seed}: {n_parameters:,} parameters", flush=True)
    batch_size = (args.sessions_in_batch, args.questions_in_batch)
    training = train(learner, args.steps, seed, args.learning_rate, batch_size, lambda line: print(line, flush=True))
    began = time.process_time()
    accuracy = score(learner, args.test_questions)
    record = {
        "variant": name,
        "git_commit": git_commit(),
        "seed": seed,
        "parameters": n_parameters,
        **settings,
        **training,
        "scoring_cpu_seconds": round(time.process_time() - began),
        "accuracy": accuracy,
    }
    atomic_write_text(path, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["accuracy"]), flush=True)


if __name__ == "__main__":
    run_script(main)
