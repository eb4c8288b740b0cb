"""The loss of one batch, equation (10): ``L = L_gen + lambda * L_ret``, and the optional entropy hinge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlmf.memory.losses import embedding_spread, entropy_hinge, retention_loss
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.training.batching import Batch


@dataclass(frozen=True)
class Losses:
    """What one batch gave: ``total`` carries the gradient, the rest is for the log."""

    total: Tensor
    gen: float
    ret: float
    hinge: float
    gates: list[float]
    """Mean share of working, episodic and semantic memory in the read."""
    spread: float
    """Collapse monitor of the node embeddings, see :func:`mlmf.memory.losses.embedding_spread`."""


class Objective(nn.Module):
    """The model and its loss as one module, so that data-parallel wrappers see a single forward pass."""

    def __init__(self, model: MLMFModel, tbptt_sessions: int, entropy_weight: float) -> None:
        """Wrap ``model``; ``tbptt_sessions`` is the truncation length of back-propagation through time, 0 for none.

        The model's config may switch the retention loss and the entropy hinge off, whatever their weights.
        """
        super().__init__()
        self.model, self.tbptt_sessions, self.entropy_weight = model, tbptt_sessions, entropy_weight

    def forward(self, batch: Batch, lambda_ret: float, labels_in_step: float) -> Losses:
        """Remember the batch's sessions one after another, then predict its labels.

        Args:
            batch: the examples.
            lambda_ret: weight of the retention loss at this step.
            labels_in_step: labelled tokens of the whole optimiser step, divided by its number of batches, so that
                the gradients of L_gen are those of the mean over all its tokens however they are split. L_ret is a
                mean over the nodes of a conversation, its sessions and the conversations of a batch.
        """
        model = self.model
        rows = model.init_state(len(batch.queries)).split()
        drifts: list[Tensor] = []
        for t, (sessions, features) in enumerate(batch.steps):
            # detached at the borders counted from the end, where the loss is
            if self.tbptt_sessions and t > 0 and (len(batch.steps) - t) % self.tbptt_sessions == 0:
                rows = [row.detach() for row in rows]
            new = model.memory.write_rows(sessions, features, rows)
            if model.config.retention:
                pairs = zip(new, rows, strict=True)
                drifts += [retention_loss(after, before) for after, before in pairs if before.nodes[0]]
            rows = new
        state = MemoryState.cat(rows)
        device = model.device
        output = model(
            batch.input_ids.to(device),
            batch.attention_mask.to(device),
            state=state,
            labels=batch.labels.to(device),
            query=model.query_keys(batch.queries),
            labelled_only=True,
        )
        ret = torch.stack(drifts).mean() if drifts else output.loss.new_zeros(())
        total = output.loss * (batch.n_labels / labels_in_step) + lambda_ret * ret
        hinge = output.loss.new_zeros(())
        if self.entropy_weight and model.config.entropy and output.gamma is not None:
            mask = batch.attention_mask.to(device)[:, None].expand(output.gamma.shape[:3])
            hinge = entropy_hinge(output.gamma.flatten(0, 1), model.config.epsilon, mask.flatten(0, 1))
            total = total + self.entropy_weight * hinge
        gates = [0.0, 0.0, 0.0] if output.gates is None else output.gates.detach().float().mean(0).tolist()
        return Losses(total, output.loss.item(), ret.item(), hinge.item(), gates, embedding_spread(state.detach()))
