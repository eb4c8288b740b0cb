"""The three layers together: one session in, a new state out (Algorithm 1, the writing half)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from mlmf.config.model import MLMFConfig
from mlmf.memory.episodic import EpisodicMemory
from mlmf.memory.features import SessionFeatures
from mlmf.memory.find import KeyProjection, NodeScorer
from mlmf.memory.fusion import Fusion, MemoryBank, ProjectedBank
from mlmf.memory.host import HostAttention
from mlmf.memory.semantic import SemanticMemory, SemanticRow, session_nodes
from mlmf.memory.state import MemoryState
from mlmf.memory.working import write_working
from mlmf.types import Session


class MultiLayerMemory(nn.Module):
    """Every trainable part of the memory, and the rule that writes a session into a state."""

    def __init__(self, config: MLMFConfig, hosts: Sequence[HostAttention], width: int) -> None:
        """Build for a model of ``width`` whose fusion layers have the attention ``hosts``."""
        super().__init__()
        key_dim = min(config.key_dim, width)
        self.config, self.width, self.key_dim, self.n_layers = config, width, key_dim, len(hosts)
        self.key_projection = KeyProjection(width, key_dim, config.seed)
        self.scorer = NodeScorer()
        self.episodic = EpisodicMemory(config.c_e, key_dim, config.alpha, config.alpha_mode == "routed")
        self.semantic = SemanticMemory(width, key_dim, config.c_s, config.node_tokens, config.tau_s)
        self.fusions = nn.ModuleList(Fusion(host, config.beta, config.epsilon, config.gating) for host in hosts)
        # how strongly the find score of a node weighs its tokens in the read; learned, from not at all
        self.find_weight = nn.Parameter(torch.zeros(()))

    def project(self, bank: MemoryBank) -> list[ProjectedBank]:
        """The bank as each fusion layer reads it."""
        return [fusion.project(bank, number) for number, fusion in enumerate(self._fusions())]

    def openings(self) -> list[float]:
        """``tanh(g)`` of each fusion layer: how far its gate is open, in [-1, 1]."""
        return [float(torch.tanh(fusion.g.detach())) for fusion in self._fusions()]

    def _fusions(self) -> list[Fusion]:
        return [cast("Fusion", fusion) for fusion in self.fusions]

    def init_state(self, batch_size: int, fingerprint: str, device: torch.device, dtype: torch.dtype) -> MemoryState:
        """Empty memories: zero slots, all masked, which no layer reads."""
        c, n, d = self.config, self.n_layers, self.width

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(batch_size, *shape, device=device, dtype=dtype)

        return MemoryState(
            working=zeros(n, c.c_w, d),
            working_mask=zeros(c.c_w).bool(),
            episodic=zeros(n, c.c_e, d),
            episodic_mask=zeros(c.c_e).bool(),
            values=zeros(n, 0, d),
            keys=zeros(0, self.key_dim),
            tokens=zeros(0).long(),
            owner=zeros(0).long(),
            embedding=zeros(0, self.key_dim),
            pooled=zeros(0, self.key_dim),
            salience=zeros(0),
            nodes=((),) * batch_size,
            sessions=(0,) * batch_size,
            fingerprint=fingerprint,
        )

    def write(
        self, sessions: Sequence[Session | None], features: Sequence[SessionFeatures | None], state: MemoryState
    ) -> MemoryState:
        """Write one session into each conversation of the batch; ``None`` leaves a conversation as it is."""
        rows = [
            self._write_row(session, feature, state, i)
            if session is not None and feature is not None
            else _row(state, i)
            for i, (session, feature) in enumerate(zip(sessions, features, strict=True))
        ]
        return MemoryState.cat(rows)

    def _write_row(self, session: Session, features: SessionFeatures, state: MemoryState, index: int) -> MemoryState:
        """One conversation: working, then episodic, then the semantic layer that reads the episodic one."""
        config, row = self.config, _row(state, index)
        features = features.to(row.working.device, row.working.dtype)
        keys = self.key_projection(features.keys)
        if config.working:
            bank, mask = write_working(features.states, config.k, config.c_w)
            row = replace(row, working=bank[None], working_mask=mask[None])
        if config.episodic:
            bank, mask = self.episodic(row.episodic[0], row.episodic_mask[0], features.states, keys)
            row = replace(row, episodic=bank[None], episodic_mask=mask[None])
        if config.semantic:
            row = self._write_semantic(row, session, features, keys)
        return replace(row, sessions=(row.sessions[0] + 1,))

    def _write_semantic(
        self, row: MemoryState, session: Session, features: SessionFeatures, keys: Tensor
    ) -> MemoryState:
        bank = SemanticRow(row.values[0], row.keys[0], row.tokens[0], row.owner[0], row.pooled[0], row.nodes[0])
        bank = self.semantic.append(
            bank, features.states, keys, features.tokens, features.pieces, session_nodes(session)
        )
        summary = (
            row.episodic[0, 0][row.episodic_mask[0]].mean(0) if row.episodic_mask.any() else row.episodic[0, 0, 0]
        )
        salience = self.semantic.score_salience(bank.pooled, summary)
        bank, salience = self.semantic.prune(bank, salience)
        return replace(
            row,
            values=bank.values[None],
            keys=bank.keys[None],
            tokens=bank.tokens[None],
            owner=bank.owner[None],
            pooled=bank.pooled[None],
            embedding=self.semantic.embed(bank)[None],
            salience=salience[None],
            nodes=(bank.nodes,),
        )


def _row(state: MemoryState, index: int) -> MemoryState:
    """One conversation of a batch, without the padding it needed there."""
    one = state.select([index])
    m, n = int(one.semantic_mask.sum()), len(one.nodes[0])
    return replace(
        one,
        values=one.values[:, :, :m],
        keys=one.keys[:, :m],
        tokens=one.tokens[:, :m],
        owner=one.owner[:, :m],
        embedding=one.embedding[:, :n],
        pooled=one.pooled[:, :n],
        salience=one.salience[:, :n],
    )
