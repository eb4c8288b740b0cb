"""Training by a curriculum over the number of sessions, and the score of each cell of the table."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import torch
from torch import nn

from benchmarks.recall_data import CATEGORIES, Asked, cell, training_batch
from benchmarks.recall_learner import Learner
from mlmf.data.synthetic import FACT, NEVER_TOLD

STAGES = (1, 2, 4, 8, 16)
"""Most sessions of a conversation, stage by stage; each batch draws from 1 to that."""
DISTANCES = (1, 2, 4, 8, 16, 32)
WINDOW = 20
"""Batches over which mastery is judged."""
MASTERY = {FACT: 0.95, NEVER_TOLD: 0.9}
WARMUP, FLOOR = 50, 0.05

Score = dict[str, dict[str, float]]
"""Category to sessions between telling and question to accuracy."""


def train(
    learner: Learner, steps: int, seed: int, rate: float, batch_size: tuple[int, int], say: Callable[[str], None]
) -> dict[str, object]:
    """Train in place for ``steps`` and tell where the curriculum stood.

    A stage ends when facts and abstentions are mastered, at the latest after its equal share of the steps.

    Args:
        learner: what is trained.
        steps: optimiser steps in all.
        seed: seed of the conversations.
        rate: peak learning rate; a linear warm-up and a cosine to a twentieth.
        batch_size: sessions and questions of a batch, about.
        say: where the log goes.
    """
    optimiser = torch.optim.AdamW(learner.groups(rate), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _factor(step, steps))
    learner.train()
    stage, entered = 0, 0
    reached = {STAGES[0]: 0}
    recent: deque[dict[int, tuple[int, int]]] = deque(maxlen=WINDOW)
    began, cpu = time.perf_counter(), time.process_time()
    for step in range(1, steps + 1):
        batch = training_batch(f"train {seed} {step}", STAGES[stage], *batch_size)
        loss, correct, log = learner(batch)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        recent.append(_counts(batch, correct))
        accuracy = _accuracy(recent)
        if step % WINDOW == 0:
            figures = " ".join(f"{name} {value:.2f}" for name, value in log.items())
            shares = " ".join(f"{CATEGORIES[c]} {accuracy[c]:.2f}" for c in sorted(accuracy))
            say(
                f"step {step}/{steps} | sessions {STAGES[stage]} | {shares} | {figures} | {time.process_time() - cpu:.0f} s"
            )
        is_mastered = len(recent) == WINDOW and all(accuracy.get(c, 0.0) >= least for c, least in MASTERY.items())
        if stage + 1 < len(STAGES) and (is_mastered or step - entered >= steps // len(STAGES)):
            stage, entered = stage + 1, step
            reached[STAGES[stage]] = step
            recent.clear()
    return {
        "stage_began_at_step": reached,
        "cpu_seconds": round(time.process_time() - cpu),
        "wall_seconds": round(time.perf_counter() - began),
    }


def _factor(step: int, steps: int) -> float:
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = min(1.0, (step - WARMUP) / max(1, steps - WARMUP))
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))


def _counts(batch: Sequence[Asked], correct: Sequence[bool]) -> dict[int, tuple[int, int]]:
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    questions = (question for asked in batch for question in asked.questions)
    for question, is_right in zip(questions, correct, strict=True):
        counts[question.category or 0][0] += is_right
        counts[question.category or 0][1] += 1
    return {category: (right, total) for category, (right, total) in counts.items()}


def _accuracy(recent: Sequence[dict[int, tuple[int, int]]]) -> dict[int, float]:
    categories = {category for counts in recent for category in counts}
    sums = {c: [sum(counts.get(c, (0, 0))[i] for counts in recent) for i in (0, 1)] for c in categories}
    return {category: right / total for category, (right, total) in sums.items()}


@torch.no_grad()
def score(learner: Learner, count: int) -> Score:
    """Accuracy in every cell, over ``count`` questions each that no training batch held."""
    learner.eval()
    table: Score = {}
    for category, name in CATEGORIES.items():
        table[name] = {}
        for sessions in DISTANCES:
            right = []
            for batch in _batches(list(cell(category, sessions, count)), 128):
                right += learner(batch)[1]
            table[name][str(sessions)] = round(sum(right) / len(right), 4)
    return table


def _batches(asked: Sequence[Asked], sessions: int) -> list[list[Asked]]:
    """Groups of about as many sessions."""
    batches: list[list[Asked]] = [[]]
    held = 0
    for one in asked:
        if held >= sessions:
            batches.append([])
            held = 0
        batches[-1].append(one)
        held += len(one.conversation.sessions)
    return batches
