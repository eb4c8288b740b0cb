"""From scores to what is read: the chosen event nodes as a bank of states, or as dated lines within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mlmf.memory.codec import StateCodec
from mlmf.memory.cues import asks_about_past, whose
from mlmf.memory.find import FindScores
from mlmf.memory.fusion import MemoryBank
from mlmf.memory.gate import MASKED
from mlmf.memory.keys import QueryKeys
from mlmf.memory.multilayer import MultiLayerMemory
from mlmf.memory.nodes import versions
from mlmf.memory.rounding import CODE_STEPS, from_stored
from mlmf.memory.state import MemoryState, Node
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


def find(query: QueryKeys, state: MemoryState, memory: MultiLayerMemory, count: int) -> Found:
    """Score the event nodes for each query, choose the best, and lay out what the fusion layers will attend to.

    Args:
        query: ``B`` queries.
        state: one memory per query, or a single one for all.
        memory: what scores the nodes and decodes them.
        count: ``m``, how many nodes are read.
    """
    if state.is_empty():
        return Found(None, [Recall((), ()) for _ in query.texts], None)
    scores: FindScores = memory.scorer(query, state)
    recalls = choose(scores.nodes, state, count)
    bank, owner = as_bank(state, recalls, scores, memory.find_weight, memory.nothing, memory.codec)
    if memory.whose is not None:
        bank = marked(bank, owner, whose(query.texts, state.layout), memory.codec.decode_change(memory.whose))
    return Found(bank, recalls, scores)


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
) -> tuple[MemoryBank, Tensor]:
    """Working and episodic memory whole, and the tokens of the chosen nodes, side by side, decoded to states.

    A chosen turn brings the date line of its session along. The share of a node among the chosen and nothing, ``log
    softmax`` of its score, times ``find_weight`` biases the attention to its tokens, so that what answers trains what finds.

    Args:
        state: one memory per query, or a single one for all.
        recalls: the chosen nodes of each query.
        scores: those they were chosen by.
        find_weight: scalar.
        nothing: the slot that stands for having found nothing, a code ``(R,)``, the last of all; ``None`` where ``scores``
            has no such score. It shows the read a poor match, which shares that sum to one cannot. A query for which there
            was no node to choose from does not get it.
        codec: decodes slots.

    Returns:
        The bank, and the node that each of its ``m`` slots of turns and date lines is of, ``(B, m)``, -1 where empty.
    """
    held = state.values.unbind()
    chosen = pad_sequence([torch.tensor(recall.chosen, dtype=torch.long) for recall in recalls], True, -1)
    chosen = chosen.to(state.owner.device)  # (B, m)
    rivals = scores.nodes.gather(1, chosen.clamp_min(0)).float().masked_fill(chosen < 0, MASKED)
    if scores.nothing is not None:
        rivals = torch.cat([rivals, scores.nothing[:, None].float()], 1)
    share = rivals.log_softmax(-1)
    values, ranks, owners = [], [], []
    for row, recall in enumerate(recalls):
        source = row if state.batch_size > 1 else 0
        owner = state.owner[source]
        rank = _ranks(recall, state.nodes[source]).to(owner.device)[owner]
        slots = (rank >= 0).nonzero().squeeze(-1)
        values.append(from_stored(held[source][slots], CODE_STEPS, state.working.dtype))
        ranks.append(rank[slots])
        owners.append(owner[slots])
    b, before = len(recalls), state.working.shape[1] + state.episodic.shape[1]
    rank = pad_sequence(ranks, True, -1)
    codes = [state.working, state.episodic, pad_sequence(values, True)]
    masks = [state.working_mask.expand(b, -1), state.episodic_mask.expand(b, -1), rank >= 0]
    logits = [share.new_zeros(b, before), share.gather(1, rank.clamp_min(0))]
    if nothing is not None:
        codes.append(nothing.to(state.working.dtype)[None, None])
        masks.append((chosen >= 0).any(1, keepdim=True))
        logits.append(share[:, -1:])
    bank = MemoryBank(
        # decoded one by one: most codes carry no gradient, and decoding takes as long backward as forward
        parts=tuple(codec.decode(part).transpose(0, 1).expand(b, -1, -1, -1) for part in codes),
        mask=torch.cat(masks, 1),
        bias=find_weight.float() * torch.cat(logits, 1),
        sizes=(state.working.shape[1], state.episodic.shape[1], sum(part.shape[1] for part in codes[2:])),
    )
    return bank, pad_sequence(owners, True, -1)


def marked(bank: MemoryBank, owner: Tensor, whose: Tensor, marks: Tensor) -> MemoryBank:
    """The bank with what is read of a turn marked by whose words it is, as a question about one person wants to know.

    Args:
        bank: of ``B`` queries.
        owner: the node of each slot of turns, ``(B, m)``, as :func:`as_bank` gives it.
        whose: of all nodes, ``(B, N)``, see :func:`mlmf.memory.cues.whose`.
        marks: what is added to states of the turns of 1 and of 2, ``(L, 2, D)``; the others stay as they are.
    """
    working, episodic, turns, *nothing = bank.parts
    kinds = F.pad(whose, (0, 1)).gather(
        1, owner % (whose.shape[1] + 1)
    )  # an empty slot reads the last entry, which is 0
    added = F.pad(marks, (0, 0, 1, 0))[:, kinds]  # (L, B, m, D)
    return replace(bank, parts=(working, episodic, turns + added.transpose(0, 1).to(turns.dtype), *nothing))


def _ranks(recall: Recall, nodes: Sequence[Node]) -> Tensor:
    """Whose share the tokens of each node have: its place among the chosen, ``(n + 1,)``, -1 for nodes that are not read.

    A date line has that of the best turn of its session. The last entry is for empty slots, whose owner is -1.
    """
    ranks = [-1] * (len(nodes) + 1)
    best: dict[int, int] = {}
    for place, chosen in enumerate(recall.chosen):
        ranks[chosen] = place
        best.setdefault(nodes[chosen].session, place)
    for i, node in enumerate(nodes):
        if node.is_session and node.session in best:
            ranks[i] = best[node.session]
    return torch.tensor(ranks)


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
