"""Two additions to finding that the recall benchmark tries out on top of the package, and can leave out."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.config.model import MLMFConfig
from mlmf.memory.find import QueryKeys
from mlmf.memory.fusion import MemoryBank
from mlmf.memory.state import MemoryState, Node
from mlmf.model import MLMFModel
from mlmf.recall import Recall, as_bank, choose

NOTHING, NOWHERE = "nothing", -1
"""Turn id and session of the node of :meth:`FindingModel.or_nothing`."""


class FindingModel(MLMFModel):
    """``MLMFModel`` that knows an outdated node from a current one, and finding nothing from finding something."""

    def __init__(
        self,
        lm: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: MLMFConfig,
        has_versions: bool = True,
        has_nothing: bool = True,
    ) -> None:
        """Wrap ``lm``; ``has_versions`` is for :meth:`scores` and ``has_nothing`` for :meth:`or_nothing`."""
        super().__init__(lm, tokenizer, config)
        self.outdating = nn.Parameter(torch.tensor(3.0)) if has_versions else None
        self.nothing = nn.Parameter(torch.randn(self.memory.codec.code_width) * 0.1) if has_nothing else None
        self.doubt = nn.Parameter(torch.tensor(5.0)) if has_nothing else None

    def scores(self, query: QueryKeys, state: MemoryState) -> Tensor:
        """Find scores ``(B, N)``, those of outdated nodes lowered by the learned weight ``outdating``."""
        scores: Tensor = self.memory.scorer(query, state)
        return scores if self.outdating is None else scores - self.outdating * outdated(scores, state)

    def read(self, query: QueryKeys, state: MemoryState) -> tuple[MemoryBank | None, list[Recall]]:
        """The bank read for each query, by :meth:`scores`, and the nodes chosen for it."""
        if not self.config.semantic:
            return super().read(query, state)
        scores = self.scores(query, state)
        recalls = choose(scores, state, self.config.recall_nodes)
        return as_bank(state, recalls, scores, self.memory.find_weight, self.memory.codec), recalls

    def or_nothing(self, state: MemoryState) -> MemoryState:
        """Add to every conversation a node that says that nothing was found.

        It matches no word, so that its find score is the learned ``doubt`` alone, and holds one learned state. The
        shares of the nodes read always sum to one, so that without it the read cannot tell a poor match from a good one.
        """
        if self.nothing is None or self.doubt is None or not self.config.semantic:
            return state
        b, (m, n) = state.batch_size, (state.owner.shape[1], state.salience.shape[1])
        at = torch.tensor([len(nodes) for nodes in state.nodes])
        salience = F.pad(state.salience, (0, 1)).where(torch.arange(n + 1) != at[:, None], self.doubt)
        owner = F.pad(state.owner, (0, 1))
        owner[:, m] = at
        return replace(
            state,
            values=torch.cat([state.values, self.nothing.expand(b, 1, -1)], 1),
            keys=F.pad(state.keys, (0, 0, 0, 1)),
            tokens=F.pad(state.tokens, (0, 1)),
            owner=owner,
            embedding=F.pad(state.embedding, (0, 0, 0, 1)),
            pooled=F.pad(state.pooled, (0, 0, 0, 1)),
            salience=salience,
            nodes=tuple((*nodes, Node(NOWHERE, 0, NOTHING, "")) for nodes in state.nodes),
        )


def outdated(scores: Tensor, state: MemoryState) -> Tensor:
    """How well the best newer node answers the same query, ``(B, N)`` in [0, 1], 1 for as well as any.

    ``max_{j > i} exp(s_j - max_k s_k)``: an old node is outdated for a query only by a newer one that is about as
    relevant to it, however long ago both were told. A penalty on age itself would bury old facts under recent chatter.
    """
    relative = (scores - scores.amax(-1, keepdim=True)).exp()  # (B, N), 0 where a node cannot be found
    told = torch.zeros_like(relative, dtype=torch.bool)
    for row in range(len(relative)):
        nodes = state.nodes[row if len(state.nodes) > 1 else 0]
        told[row, : len(nodes)] = torch.tensor([node.turn_id != NOTHING for node in nodes])
    newest_first = (relative * told).flip(-1)
    return F.pad(newest_first.cummax(-1).values.flip(-1)[:, 1:], (0, 1))
