"""What is compared in finding: indexes over the text of the turns, and the memory, whole, with a part off, or pruned."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from mlmf.memory.find import NodeScorer
from mlmf.memory.semantic import SemanticRow
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.recall import choose
from mlmf.retrieval.base import Hit
from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.dense import DenseIndex
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.fusion import HybridIndex
from mlmf.systems.text import searchable
from mlmf.training.feature_cache import FeatureCache
from mlmf.types import Conversation

DEPTH = 20
"""Turns ranked for each question."""
PARTS = {
    "late_interaction": ("late",),
    "lexical": ("lexical", "session_lexical"),
    "context": ("context",),
    "graph": ("neighbourhood", "ties"),
    "neighbours": ("before", "after"),
    "speaker": ("speaker",),
    "month": ("month",),
    "versions": ("versions",),
}
"""Ingredients of the find score, and the weights that are zero without them."""
POLICIES = ("salience", "newest", "random", "longest")
"""What decides which turns are kept under a capacity."""
Rankings = list[Sequence[str]]


def ranked_by_indexes(conversation: Conversation, queries: Sequence[str], encoder: Encoder) -> dict[str, Rankings]:
    """For each of bm25, dense and hybrid, and each query, the ids of the best turns, best first."""
    bm25, dense = BM25Index(), DenseIndex(encoder)
    hybrid = HybridIndex([bm25, dense], [0.5, 0.5])
    hybrid.add([searchable(turn) for turn in conversation.turns])

    def ids(hits: Sequence[Hit]) -> list[str]:
        return [conversation.turns[hit.position].id for hit in hits]

    indexes = {"bm25": bm25, "dense": dense, "hybrid": hybrid}
    return {name: [ids(hits) for hits in index.search(queries, DEPTH)] for name, index in indexes.items()}


@torch.no_grad()
def remember(conversation: Conversation, model: MLMFModel, features: FeatureCache) -> MemoryState:
    """Every session of a conversation, written one after the other from cached features."""
    state = model.init_state()
    for session in conversation.sessions:
        state = model.write([session], [features.load(session)], state)
    return state


@torch.no_grad()
def ranked_by_memory(state: MemoryState, queries: Sequence[str], model: MLMFModel, batch_size: int) -> Rankings:
    """The ids of the turns that a memory finds for each query, best first; nothing is generated."""
    found: Rankings = []
    for start in range(0, len(queries), batch_size):
        ids = [
            model.tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in queries[start : start + batch_size]
        ]
        scores = model.memory.scorer(model.query_keys(ids), state).nodes
        found += [recall.turn_ids for recall in choose(scores, state, DEPTH)]
    return found


@contextmanager
def without(scorer: NodeScorer, part: str) -> Iterator[None]:
    """A scorer that lacks an ingredient of :data:`PARTS` for as long as this lasts."""
    weights = [weight for name in PARTS[part] if (weight := getattr(scorer, name)) is not None]
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            weight.zero_()
        try:
            yield
        finally:
            for weight, value in zip(weights, kept, strict=True):
                weight.copy_(value)


@torch.no_grad()
def pruned(state: MemoryState, policy: str, share: float, model: MLMFModel, seed: int = 0) -> MemoryState:
    """A memory of one conversation of which only a share of the nodes is left.

    Args:
        state: the whole memory.
        policy: ``salience`` is the model's own (learned salience and length, then degree, then the newer); the others keep the
            newest or longest turns, or any. All count the date line of a session as a node.
        share: of the nodes, in (0, 1].
        model: prunes and embeds.
        seed: of ``random``.
    """
    semantic = model.memory.semantic
    assert semantic is not None  # a model without it finds nothing, and is refused before
    row, nodes = SemanticRow.of(state), state.nodes[0]
    order = list(range(len(nodes)))
    if policy == "random":
        random.Random(seed).shuffle(order)
    elif policy == "longest":
        order.sort(key=lambda i: len(nodes[i].line))
    rank = torch.empty(len(nodes))
    # so far apart that the length of a turn, which counts beside its salience, has no say
    rank[torch.tensor(order)] = 100 * torch.arange(len(nodes), dtype=rank.dtype)
    salience = state.salience[0].float() if policy == "salience" else rank
    capacity, semantic.c_s = semantic.c_s, max(2, round(share * len(nodes)))
    try:
        # the kept keys are embedded again: what is gone sends no messages
        row, _ = semantic.prune(row, salience)
    finally:
        semantic.c_s = capacity
    return semantic.settle([row], [state])[0]
