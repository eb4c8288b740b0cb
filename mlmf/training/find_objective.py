"""The first stage: what finds is trained alone, by the evidence loss over whole histories, and nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlmf.memory.features import SessionFeatures
from mlmf.memory.losses import embedding_spread, evidence_loss
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.recall import choose
from mlmf.training.batching import Batch, Counts
from mlmf.training.objective import Losses, count_found, mean_nodes
from mlmf.types import Session

History = list[tuple[Session, SessionFeatures]]


class FindObjective(nn.Module):
    """``L_evi`` of a batch; examples that remember the same sessions share one memory, written once.

    Gradients reach the key projection, the weights of query tokens and those of the scorer; through embeddings and salience
    the semantic layer, and through salience the episodic one, which it reads.
    """

    def __init__(self, model: MLMFModel) -> None:
        """Wrap ``model``."""
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, lambda_ret: float, per_batch: Counts) -> Losses:
        """The loss of one batch, with the arguments of :class:`mlmf.training.objective.Objective`.

        ``lambda_ret`` weighs nothing here: the embeddings are compared by what they find.
        """
        losses: list[Tensor] = []
        sought, found, spread, nodes = 0, 0, 0.0, 0.0
        groups = _by_history(batch)
        for history, members in groups:
            state = self._remember(history)
            scores = self.model.memory.scorer(self.model.query_keys([batch.queries[i] for i in members]), state)
            evidence = [batch.evidence[i] for i in members]
            losses.append(evidence_loss(scores, state, evidence))
            recalls = choose(scores.nodes, state, self.model.config.recall_nodes)
            counted = count_found(evidence, state, recalls)
            sought, found = sought + counted[0], found + counted[1]
            spread += embedding_spread(state.detach()) / len(groups)
            nodes += mean_nodes(state) / len(groups)
        known = batch.counts.evidence
        evi = torch.cat(losses).sum() / max(1.0, known)
        total = evi * (known / max(1.0, per_batch.evidence))
        return Losses(
            total=total, gen=0.0, ret=0.0, evi=evi.item(), hinge=0.0, sought=sought, found=found,
            gates=[0.0, 0.0, 0.0], spread=spread, nodes=nodes,
        )  # fmt: skip

    def _remember(self, history: History) -> MemoryState:
        row = self.model.init_state()
        for session, features in history:
            row = self.model.memory.write_rows([session], [features], [row])[0]
        return row


def _by_history(batch: Batch) -> list[tuple[History, list[int]]]:
    """What is remembered, and the numbers of the examples that remember it."""
    histories = [_history(batch.steps, row) for row in range(len(batch.queries))]
    groups: dict[tuple[int, ...], tuple[History, list[int]]] = {}
    for row, history in enumerate(histories):
        # the collator takes sessions from the conversations themselves: the same session is the same object
        groups.setdefault(tuple(id(session) for session, _ in history), (history, []))[1].append(row)
    return list(groups.values())


def _history(steps: Sequence[tuple[Sequence[Session | None], Sequence[SessionFeatures | None]]], row: int) -> History:
    pairs = ((sessions[row], features[row]) for sessions, features in steps)
    return [(session, features) for session, features in pairs if session is not None and features is not None]
