"""Tokenised examples to batches: which sessions each one remembers, and its prompt and labels side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mlmf.memory.features import SessionFeatures
from mlmf.memory.losses import Evidence
from mlmf.model import IGNORED
from mlmf.training.feature_memory import FeatureMemory
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
    shown_tokens: int = 0
    """Tokens of the turns found that each prompt shows as dated lines, at most."""

    @property
    def n_labels(self) -> int:
        """Tokens trained on."""
        return int((self.labels[:, 1:] != IGNORED).sum())

    @property
    def n_tokens(self) -> int:
        """Tokens the wrapped model reads, padding and shown lines apart."""
        return int(self.attention_mask.sum())

    @property
    def counts(self) -> Counts:
        """What the losses are means over; shown lines are no part of it."""
        known = sum(one is not None for one in self.evidence)
        return Counts(len(self.queries), self.n_labels, known, self.n_tokens)


def with_lines(batch: Batch, lines: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and labels ``(B, T)`` of a batch whose prompts begin with shown lines; rows still end together.

    Args:
        batch: the examples.
        lines: ids of what each prompt shows.
        pad: id of padding.
    """
    lengths = batch.attention_mask.sum(1).tolist()
    own = batch.input_ids.shape[1]
    size = max(own, *(len(shown) + length for shown, length in zip(lines, lengths, strict=True)))
    more = (size - own, 0)
    ids, mask = F.pad(batch.input_ids, more, value=pad), F.pad(batch.attention_mask, more)
    for row, (shown, length) in enumerate(zip(lines, lengths, strict=True)):
        place = slice(size - length - len(shown), size - length)
        ids[row, place], mask[row, place] = torch.tensor(shown, dtype=ids.dtype), 1
    return ids, mask, F.pad(batch.labels, more, value=IGNORED)


@dataclass(frozen=True)
class Untold:
    """Now and then an answerable question is asked of a memory without what answers it, to be told that it does not know.

    Written traps are few; these are as many as there are questions.
    """

    share: float
    """Of the examples whose evidence is known."""
    target: list[int]
    """Ids of the abstention and the end."""

    def __call__(self, example: dict[str, Any], seed: int) -> dict[str, Any]:
        """The example, or itself with its needed sessions barred; decided by the seed, the epoch and the example."""
        draw = random.Random(f"untold {seed} {example['epoch']} {example['index']}").random()
        if not example["evidence"] or draw >= self.share or len(example["needed"]) == example["pool"]:
            return example
        return {**example, "needed": [], "barred": example["needed"], "target": self.target, "evidence": []}


class Collator:
    """Builds batches. The sessions an example remembers depend on the seed, the epoch and the example alone."""

    def __init__(
        self,
        conversations: Sequence[Conversation],
        features: FeatureMemory,
        seed: int,
        pad_token_id: int,
        *,
        untold: Untold | None = None,
        whole: bool = False,
    ) -> None:
        """Collate examples of ``conversations``.

        ``untold`` may change what they ask for; ``whole`` remembers every session of an example's pool.
        """
        self.untold = untold
        self.conversations, self.features, self.seed, self.pad = conversations, features, seed, pad_token_id
        self.whole = whole
        self.distractors = 0
        """Most sessions beside the needed ones; whoever makes the steps raises it."""
        self.shown_tokens = 0
        """Tokens of recalled lines in a prompt; whoever makes the steps draws it."""

    def sessions(self, example: dict[str, Any]) -> list[Session]:
        """The needed sessions and up to ``distractors`` others of the pool, in the order of time."""
        sessions = self.conversations[example["conversation"]].sessions
        if self.whole:
            return list(sessions[: example["pool"]])
        generator = random.Random(f"{self.seed} {example['epoch']} {example['index']}")
        needed = set(example["needed"])
        others = [i for i in range(example["pool"]) if i not in needed and i not in example.get("barred", ())]
        # with nothing needed (a reply, a question about what never happened) memory must still hold something
        count = min(len(others), generator.randint(0, self.distractors) + (not needed))
        chosen = sorted(needed | set(generator.sample(others, count)))
        return [sessions[i] for i in chosen]

    def __call__(self, examples: Sequence[dict[str, Any]]) -> Batch:
        """Examples, each with its ``index`` and ``epoch``, to a batch padded on the left."""
        if self.untold is not None:
            examples = [self.untold(example, self.seed) for example in examples]
        remembered = [self.sessions(example) for example in examples]
        length = max(map(len, remembered))
        steps = []
        for t in range(length):
            now = [row[t - length + len(row)] if t >= length - len(row) else None for row in remembered]
            steps.append((now, [self.features.load(s) if s is not None else None for s in now]))
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
            shown_tokens=self.shown_tokens,
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
