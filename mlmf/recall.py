"""From scores to what is read: the chosen event nodes as a bank of states, or as dated lines within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlmf.memory.codec import StateCodec
from mlmf.memory.cues import asks_about_past
from mlmf.memory.find import FindScores
from mlmf.memory.fusion import MemoryBank
from mlmf.memory.nodes import versions
from mlmf.memory.rounding import CODE_STEPS, from_stored
from mlmf.memory.state import MemoryState, Node, pad_to
from mlmf.retrieval.budget import within_budget


@dataclass(frozen=True)
class Recall:
    """Event nodes chosen for one query, as positions in the conversation's ``nodes``; best first where they are read."""

    chosen: tuple[int, ...]
    nodes: tuple[Node, ...]

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """Ids of the chosen turns, in the same order."""
        return tuple(node.turn_id for node in self.nodes)

    @property
    def lines(self) -> tuple[str, ...]:
        """The chosen turns as dated lines, in the same order."""
        return tuple(node.line for node in self.nodes)


@dataclass(frozen=True)
class Found:
    """What one find gave: the bank to attend to, the nodes in it for each query, and the scores that chose them.

    ``bank`` and ``scores`` are ``None`` for memories that hold nothing.
    """

    bank: MemoryBank | None
    recalls: list[Recall]
    scores: FindScores | None


def choose(scores: Tensor, state: MemoryState, count: int) -> list[Recall]:
    """The ``count`` best event nodes for each query; equal scores go to the earlier node.

    Args:
        scores: ``(B, N)``, ``-inf`` where a node cannot be found.
        state: one memory per query, or a single one for all.
        count: ``m``, how many nodes are read.
    """
    order = scores.detach().float().cpu().sort(dim=-1, descending=True, stable=True)
    recalls = []
    for row, (values, indices) in enumerate(zip(order.values, order.indices, strict=True)):
        nodes = state.nodes[row if len(state.nodes) > 1 else 0]
        chosen = tuple(i for i, v in zip(indices[:count].tolist(), values[:count].tolist(), strict=True) if v > -1e30)
        recalls.append(Recall(chosen, tuple(nodes[i] for i in chosen)))
    return recalls


def as_bank(
    state: MemoryState,
    recalls: Sequence[Recall],
    scores: FindScores,
    find_weight: Tensor,
    nothing: Tensor | None,
    codec: StateCodec,
) -> MemoryBank:
    """Working and episodic memory whole, and the tokens of the chosen nodes, side by side, decoded to states.

    A chosen turn brings the date line of its session along. The share of a node among the chosen and nothing, ``log
    softmax`` of its score, times ``find_weight`` biases the attention to its tokens, so that what answers trains what finds.

    Args:
        state: one memory per query, or a single one for all.
        recalls: the chosen nodes of each query.
        scores: those they were chosen by.
        find_weight: scalar.
        nothing: the slot that stands for having found nothing, a code ``(R,)``; ``None`` where ``scores`` has no such score.
            It shows the read a poor match, which shares that sum to one cannot. A query for which there was no node to
            choose from does not get it.
        codec: decodes slots.
    """
    values, biases = [], []
    held = state.values.unbind()  # indexed row by row, each gradient would be as large as the whole batch
    for row, recall in enumerate(recalls):
        source = row if state.batch_size > 1 else 0
        nodes = state.nodes[source]
        rivals = scores.nodes[row, list(recall.chosen)]
        if scores.nothing is not None:
            rivals = torch.cat([rivals, scores.nothing[row, None]])
        share = rivals.float().log_softmax(-1)
        place = {node: i for i, node in enumerate(recall.chosen)}
        best: dict[int, int] = {}
        for node in recall.chosen:
            best.setdefault(nodes[node].session, place[node])
        place |= {i: best[n.session] for i, n in enumerate(nodes) if n.is_session and n.session in best}
        lookup = torch.full((len(nodes) + 1,), -1, dtype=torch.long)
        lookup[list(place)] = torch.tensor(list(place.values()), dtype=torch.long)
        ranks = lookup.to(state.owner.device)[state.owner[source]]  # an empty slot's owner -1 reads the last entry, -1
        slots = (ranks >= 0).nonzero().squeeze(-1)
        value, logits = from_stored(held[source][slots], CODE_STEPS, state.working.dtype), share[ranks[slots]]
        if nothing is not None and recall.chosen:
            value, logits = torch.cat([value, nothing[None].to(value.dtype)]), torch.cat([logits, share[-1:]])
        values.append(value)
        biases.append(find_weight.float() * logits)
    size = max(value.shape[0] for value in values)
    semantic = torch.stack([pad_to(value, 0, size) for value in values])
    semantic_mask = torch.stack([torch.arange(size, device=v.device) < v.shape[0] for v in values])
    bias = torch.stack([pad_to(b, 0, size) for b in biases])
    b = len(recalls)
    working, episodic = state.working.expand(b, -1, -1), state.episodic.expand(b, -1, -1)
    masks = [state.working_mask.expand(b, -1), state.episodic_mask.expand(b, -1), semantic_mask]
    # one by one: only the episodic codes carry a gradient, and decoding takes as long backward as forward
    states = torch.cat([codec.decode(part) for part in (working, episodic, semantic)], 2)  # (L, B, M, D)
    return MemoryBank(
        states=states.transpose(0, 1),
        mask=torch.cat(masks, 1),
        bias=torch.cat([bias.new_zeros(b, working.shape[1] + episodic.shape[1]), bias], 1),
        sizes=(working.shape[1], episodic.shape[1], size),
    )


def as_lines(
    ranked: Recall,
    nodes: Sequence[Node],
    question: str,
    budget: int,
    count_tokens: Callable[[str], int],
    neighbours: int = 0,
) -> Recall:
    """The turns whose dated lines are shown, in the order of time: the best that fit into ``budget`` tokens.

    Where the question asks about the past, a turn is followed by what it superseded. What was said around the turns comes
    after all of them. Two turns of the same line are shown once. A turn that is too long does not keep a shorter one out.

    Args:
        ranked: nodes found for the question, best first.
        nodes: all of the conversation.
        question: its words.
        budget: tokens of all lines together, the ends of lines among them.
        count_tokens: of a text.
        neighbours: turns before and after each one that are wanted too.
    """
    wanted = list(ranked.chosen)
    if asks_about_past(question):
        wanted = [i for found in ranked.chosen for i in (found, *reversed(versions(nodes, found)))]
    place = {node.key: i for i, node in enumerate(nodes) if not node.is_session}
    for i in ranked.chosen:
        session, turn = nodes[i].key
        around = (turn + sign * far for far in range(1, neighbours + 1) for sign in (-1, 1))
        beside = (place.get((session, other)) for other in around)
        wanted += [j for j in beside if j is not None and not nodes[j].superseded]
    lines: dict[str, int] = {}
    for i in wanted:
        lines.setdefault(nodes[i].line, i)
    fitting = within_budget([count_tokens(line + "\n") for line in lines], budget)
    different = list(lines.values())
    shown = sorted((different[position] for position in fitting), key=lambda i: nodes[i].key)
    return Recall(tuple(shown), tuple(nodes[i] for i in shown))
