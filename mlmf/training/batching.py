"""Tokenised examples to batches: which sessions each one remembers, and its prompt and labels side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlmf.memory.features import SessionFeatures
from mlmf.memory.losses import Evidence
from mlmf.model import IGNORED
from mlmf.training.feature_cache import FeatureCache
from mlmf.types import Conversation, Session


class Counts(NamedTuple):
    """What the losses are means over: examples, tokens trained on, examples whose evidence is known, tokens read.

    A number may be a share, such as a batch's part in a step.
    """

    examples: float
    labels: float
    evidence: float
    tokens: float


@dataclass(frozen=True)
class Batch:
    """``B`` examples. ``steps[t]`` is what each conversation remembers at time ``t``; rows end together, at the last."""

    steps: list[tuple[list[Session | None], list[SessionFeatures | None]]]
    queries: list[list[int]]
    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    evidence: list[Evidence]
    """What each query should find."""

    @property
    def n_labels(self) -> int:
        """Tokens trained on."""
        return int((self.labels[:, 1:] != IGNORED).sum())

    @property
    def n_tokens(self) -> int:
        """Tokens the wrapped model reads, padding apart."""
        return int(self.attention_mask.sum())

    @property
    def counts(self) -> Counts:
        """What the losses are means over."""
        known = sum(one is not None for one in self.evidence)
        return Counts(len(self.queries), self.n_labels, known, self.n_tokens)


class Collator:
    """Builds batches. The sessions an example remembers depend on the seed, the epoch and the example alone."""

    def __init__(
        self,
        conversations: Sequence[Conversation],
        features: FeatureCache,
        seed: int,
        pad_token_id: int,
        whole: bool = False,
    ) -> None:
        """Collate examples of ``conversations``; ``whole`` remembers every session of an example's pool."""
        self.conversations, self.features, self.seed, self.pad = conversations, features, seed, pad_token_id
        self.whole = whole
        self.distractors = 0
        """Most sessions beside the needed ones; the loop raises it."""

    def sessions(self, example: dict[str, Any]) -> list[Session]:
        """The needed sessions and up to ``distractors`` others of the pool, in the order of time."""
        sessions = self.conversations[example["conversation"]].sessions
        if self.whole:
            return list(sessions[: example["pool"]])
        generator = random.Random(f"{self.seed} {example['epoch']} {example['index']}")
        needed = set(example["needed"])
        others = [i for i in range(example["pool"]) if i not in needed]
        # with nothing needed (a reply, a question about what never happened) memory must still hold something
        count = min(len(others), generator.randint(0, self.distractors) + (not needed))
        chosen = sorted(needed | set(generator.sample(others, count)))
        return [sessions[i] for i in chosen]

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        """Examples, each with its ``index`` and ``epoch``, to a batch padded on the left."""
        remembered = [self.sessions(example) for example in examples]
        length = max(map(len, remembered))
        load = cache(self.features.load)  # whole histories are those of a few conversations, many times over
        steps = []
        for t in range(length):
            now = [row[t - length + len(row)] if t >= length - len(row) else None for row in remembered]
            steps.append((now, [load(s) if s is not None else None for s in now]))
        size = max(len(e["prompt"]) + len(e["target"]) for e in examples)
        ids, mask, labels = [], [], []
        for example in examples:
            prompt, target = example["prompt"], example["target"]
            padding = size - len(prompt) - len(target)
            ids.append([self.pad] * padding + prompt + target)
            mask.append([0] * padding + [1] * (size - padding))
            labels.append([IGNORED] * (size - len(target)) + target)
        return Batch(
            steps=steps,
            queries=[example["query"] for example in examples],
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            labels=torch.tensor(labels),
            evidence=[_evidence(example["evidence"]) for example in examples],
        )


def epoch_order(conversations: Sequence[int], seed: int, together: int = 1) -> list[int]:
    """The examples of an epoch in a seeded order.

    Args:
        conversations: that of each example.
        seed: of the order.
        together: how many examples of a conversation follow each other, where it has as many.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(conversations), generator=generator).tolist()
    if together == 1:
        return order
    members: dict[int, list[int]] = {}
    for i in order:
        members.setdefault(conversations[i], []).append(i)
    parts = [row[start : start + together] for row in members.values() for start in range(0, len(row), together)]
    return [i for part in torch.randperm(len(parts), generator=generator).tolist() for i in parts[part]]


def _evidence(pairs: Sequence[Sequence[int]] | None) -> Evidence:
    return None if pairs is None else tuple((session, turn) for session, turn in pairs)
