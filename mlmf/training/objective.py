"""The loss of one batch, equation (10): ``L = L_gen + lambda * L_ret``, with ``L_evi`` and the entropy hinge beside it.

Each of them is a mean over something of the whole optimiser step, so that it does not matter how a step is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlmf.answering import shown_lines
from mlmf.memory.losses import Evidence, embedding_spread, entropy_hinge, evidence_loss, places, retention_loss
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.recall import Recall
from mlmf.training.batching import Batch, Counts, with_lines


@dataclass(frozen=True)
class Losses:
    """What one batch gave: ``total`` carries the gradient, the rest is for the log."""

    total: Tensor
    gen: float
    ret: float
    evi: float
    hinge: float
    sought: int
    """Examples with evidence turns."""
    found: int
    """Those of which at least one is among the nodes read."""
    gates: list[float]
    """Mean share of working, episodic and semantic memory in the read."""
    spread: float
    """Collapse monitor of the node embeddings, see :func:`mlmf.memory.losses.embedding_spread`."""
    nodes: float
    """Mean number of nodes in a conversation's semantic memory."""


class Objective(nn.Module):
    """The model and its loss as one module, so that data-parallel wrappers see a single forward pass."""

    def __init__(
        self, model: MLMFModel, tbptt_sessions: int = 0, entropy_weight: float = 0.0, evidence_weight: float = 0.0
    ) -> None:
        """Wrap ``model``; ``tbptt_sessions`` is the truncation length of back-propagation through time, 0 for none.

        The model's config may switch the retention loss and the entropy hinge off, whatever their weights.
        """
        super().__init__()
        self.model, self.tbptt_sessions = model, tbptt_sessions
        self.entropy_weight, self.evidence_weight = entropy_weight, evidence_weight

    def forward(self, batch: Batch, lambda_ret: float, per_batch: Counts) -> Losses:
        """Remember the batch's sessions one after another, then predict its labels.

        Args:
            batch: the examples.
            lambda_ret: weight of the retention loss at this step.
            per_batch: counts of the whole optimiser step, divided by its number of batches. The total is weighted so
                that the mean of it over the batches of a step is the loss of the step.
        """
        model, counts, device = self.model, batch.counts, self.model.device
        state, drift = self._remember(batch)
        query = model.query_keys(batch.queries)
        read = model.read(query, state)
        shown = shown_lines(model, query.texts, state, read, batch.shown_tokens)
        lines = [self._line_ids(recall) for recall in shown]
        ids, mask, labels = (part.to(device) for part in with_lines(batch, lines, model.tokenizer.pad_token_id))
        output = model(ids, mask, labels=labels, found=read, labelled_only=True)
        none = output.loss.new_zeros(())
        ret = drift.mean()
        total = output.loss * (counts.labels / per_batch.labels)
        total = total + lambda_ret * ret * (counts.examples / per_batch.examples)
        evi = none
        if counts.evidence and output.scores is not None:
            evi = evidence_loss(output.scores, state, batch.evidence).sum() / counts.evidence
            total = total + self.evidence_weight * evi * (counts.evidence / per_batch.evidence)
        hinge = none
        if self.entropy_weight and model.config.entropy and output.gamma is not None:
            # of what was asked and is to be said, whatever is shown before it
            own = batch.attention_mask.to(device)
            gamma = output.gamma[:, :, -own.shape[1] :]
            own = own[:, None].expand(gamma.shape[:3])
            hinge = entropy_hinge(gamma.flatten(0, 1), model.config.epsilon, own.flatten(0, 1))
            total = total + self.entropy_weight * hinge * (counts.tokens / per_batch.tokens)
        sought, found = count_found(batch.evidence, state, output.recalls)
        return Losses(
            total=total,
            gen=output.loss.item(),
            ret=ret.item(),
            evi=evi.item(),
            hinge=hinge.item(),
            sought=sought,
            found=found,
            gates=[0.0, 0.0, 0.0] if output.gates is None else output.gates.detach().float().mean(0).tolist(),
            spread=embedding_spread(state.detach()),
            nodes=mean_nodes(state),
        )

    def _line_ids(self, shown: Recall) -> list[int]:
        text = "".join(f"{line}\n" for line in shown.lines)
        ids: list[int] = self.model.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return ids

    def _remember(self, batch: Batch) -> tuple[MemoryState, Tensor]:
        """The memories after the batch's sessions, and the drift of each, mean over its sessions, ``(B,)``."""
        model = self.model
        rows = model.init_state(len(batch.queries)).split()
        drifts: list[list[Tensor]] = [[] for _ in rows]
        for t, (sessions, features) in enumerate(batch.steps):
            # detached at the borders counted from the end, where the loss is
            if self.tbptt_sessions and t > 0 and (len(batch.steps) - t) % self.tbptt_sessions == 0:
                rows = [row.detach() for row in rows]
            new = model.memory.write_rows(sessions, features, rows)
            if model.config.retention:
                for drift, after, before in zip(drifts, new, rows, strict=True):
                    if before.nodes[0]:
                        drift.append(retention_loss(after, before))
            rows = new
        none = torch.zeros(1, device=model.device)
        return MemoryState.cat(rows), torch.cat([torch.stack(d).mean(0) if d else none for d in drifts])


def mean_nodes(state: MemoryState) -> float:
    """Nodes of the semantic memories in a state, over its conversations."""
    return sum(map(len, state.nodes)) / len(state.nodes)


def count_found(evidence: Sequence[Evidence], state: MemoryState, recalls: Sequence[Recall]) -> tuple[int, int]:
    """How many queries have evidence turns, and of how many at least one is among the nodes read."""
    nodes = state.nodes if len(state.nodes) > 1 else state.nodes * len(evidence)
    read = [
        not set(places(one, row)).isdisjoint(recall.chosen)
        for one, row, recall in zip(evidence, nodes, recalls, strict=True)
    ]
    return sum(bool(one) for one in evidence), sum(read)
