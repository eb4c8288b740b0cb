"""The three layers together: one session in, a new state out (Algorithm 1, the writing half)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import cast

import torch
from torch import Tensor, nn

from mlmf.config.model import MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.codec import StateCodec
from mlmf.memory.entities import entity_extractor
from mlmf.memory.episodic import EpisodicMemory
from mlmf.memory.features import SessionFeatures
from mlmf.memory.find import NodeScorer
from mlmf.memory.forget import forget_row, what_goes
from mlmf.memory.fusion import Fusion, MemoryBank, ProjectedBank
from mlmf.memory.host import HostAttention
from mlmf.memory.keys import KeyProjection
from mlmf.memory.rounding import CODE_STEPS, KEY_STEPS, from_stored, to_stored
from mlmf.memory.semantic import SemanticMemory, SemanticRow, session_nodes
from mlmf.memory.state import MemoryState
from mlmf.memory.working import write_working
from mlmf.types import Session


class MultiLayerMemory(nn.Module):
    """Every trainable part of the memory, and the rules that write a session into a state and take it out again.

    A part that the config switches off is not there: it has no weights and its slots do not exist.
    """

    def __init__(self, config: MLMFConfig, hosts: Sequence[HostAttention], width: int, vocab: int) -> None:
        """Build for a model of ``width`` and ``vocab`` token ids whose fusion layers have the attention ``hosts``."""
        super().__init__()
        key_dim = min(config.key_dim, width)
        self.config, self.width, self.key_dim = config, width, key_dim
        self.codec = StateCodec(len(hosts), width, config.code_dim, config.seed)
        self.key_projection = KeyProjection(width, key_dim, config.seed)
        self.scorer = NodeScorer(vocab, config.versions, config.nothing)
        # how strongly the find score of a node weighs its tokens in the read; learned, from not at all
        self.find_weight = nn.Parameter(torch.zeros(()))
        self.episodic, self.semantic = None, None
        if config.episodic:
            self.episodic = EpisodicMemory(config.c_e, key_dim, config.alpha, config.alpha_mode)
        if config.semantic:
            self.semantic = SemanticMemory(
                self.codec.code_width, key_dim, config.c_s, config.c_m, config.node_tokens, config.tau_s
            )
        else:  # nothing to find, nothing to learn about finding
            self.scorer.requires_grad_(False)
            self.key_projection.token.requires_grad_(False)
            self.find_weight.requires_grad_(False)
        epsilon = config.epsilon if config.entropy else math.inf
        self.fusions = nn.ModuleList(Fusion(host, config.beta, epsilon, config.gating) for host in hosts)
        # what is read of having found nothing: a slot like those of a turn
        has_nothing = config.semantic and config.nothing
        self.nothing = nn.Parameter(torch.randn(self.codec.code_width)) if has_nothing else None
        # added to what is read of the turns of those whom the question names, and of all others; learned, from nothing
        marks = config.semantic and config.whose
        self.whose = nn.Parameter(torch.zeros(2, self.codec.code_width)) if marks else None
        self.extract = entity_extractor(config.entities)

    def calibrate(self, states: Tensor, keys: Tensor) -> None:
        """Take the statistics of codes and keys from sample states of the fusion layers ``(n, L, D)`` and the key layer.

        Codes keep what the fusions read of states at this moment, which is before they are trained.

        States that were written before can no longer be read: their fingerprint is another one.
        """
        with torch.no_grad():
            reads = [fusion.reads(states[:, layer]) for layer, fusion in enumerate(self._fusions())]
        self.codec.calibrate(states, reads)
        self.key_projection.calibrate(keys)

    def project(self, bank: MemoryBank) -> list[ProjectedBank]:
        """The bank as each fusion layer reads it."""
        return [fusion.project(bank, number) for number, fusion in enumerate(self._fusions())]

    def openings(self) -> list[float]:
        """``tanh(g)`` of each fusion layer: how far its gate is open, in [-1, 1]."""
        return [float(torch.tanh(fusion.g.detach())) for fusion in self._fusions()]

    def sharpness(self) -> float | None:
        """Mean ``beta`` of the layer gates (eq. 7), one over their temperature; ``None`` without gating."""
        betas = [float(fusion.gate.log_beta.detach().exp()) for fusion in self._fusions() if fusion.gate is not None]
        return sum(betas) / len(betas) if betas else None

    def _fusions(self) -> list[Fusion]:
        return [cast("Fusion", fusion) for fusion in self.fusions]

    def init_state(self, batch_size: int, fingerprint: str, device: torch.device, dtype: torch.dtype) -> MemoryState:
        """Empty memories: zero slots, all masked, which no layer reads."""
        c, r = self.config, self.codec.code_width
        c_w, c_e = c.c_w * c.working, c.c_e * c.episodic
        slots = torch.int8 if c.slots == "int8" else dtype

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(batch_size, *shape, device=device, dtype=dtype)

        return MemoryState(
            working=zeros(c_w, r),
            working_mask=zeros(c_w, dtype=torch.bool),
            episodic=zeros(c_e, r),
            episodic_mask=zeros(c_e, dtype=torch.bool),
            values=zeros(0, r, dtype=slots),
            keys=zeros(0, self.key_dim, dtype=slots),
            tokens=zeros(0, dtype=torch.long),
            owner=zeros(0, dtype=torch.long),
            embedding=zeros(0, self.key_dim),
            pooled=zeros(0, self.key_dim),
            salience=zeros(0),
            nodes=((),) * batch_size,
            sessions=(0,) * batch_size,
            latest=(-1,) * batch_size,
            fingerprint=fingerprint,
        )

    def write(
        self, sessions: Sequence[Session | None], features: Sequence[SessionFeatures | None], state: MemoryState
    ) -> MemoryState:
        """Write one session into each conversation of the batch; ``None`` leaves a conversation as it is."""
        return MemoryState.cat(self.write_rows(sessions, features, state.split()))

    def write_rows(
        self,
        sessions: Sequence[Session | None],
        features: Sequence[SessionFeatures | None],
        rows: Sequence[MemoryState],
    ) -> list[MemoryState]:
        """:meth:`write` for conversations that are held apart, as :meth:`MemoryState.split` gives them.

        Who writes several sessions in a row joins the conversations once, at the end: joined after every session, all
        that was written before would be padded and copied each time.
        """
        given = [
            (i, session, feature.to(rows[i].working.device, rows[i].working.dtype))
            for i, (session, feature) in enumerate(zip(sessions, features, strict=True))
            if session is not None and feature is not None
        ]
        if not given:
            return list(rows)
        # what takes a product is done for all conversations at once
        sizes = [feature.n_tokens for _, _, feature in given]
        keys = self.key_projection(torch.cat([feature.keys for _, _, feature in given])).split(sizes)
        written, banks = [], []
        for (i, session, feature), key in zip(given, keys, strict=True):
            row, bank = self._write_row(session, feature, key, rows[i])
            written.append(row)
            banks.append(bank)
        if self.semantic is not None:
            written = self.semantic.settle(banks, written)
        new = dict(zip((i for i, _, _ in given), written, strict=True))
        return [new.get(i, row) for i, row in enumerate(rows)]

    def _write_row(
        self, session: Session, features: SessionFeatures, keys: Tensor, row: MemoryState
    ) -> tuple[MemoryState, SemanticRow]:
        """One conversation: working, then episodic, and the semantic bank, which is still to be settled."""
        config, dtype = self.config, row.working.dtype
        # every layer is written from what the bank will hold, so that forgetting can write them again from it
        codes = from_stored(to_stored(features.codes, CODE_STEPS, row.values.dtype), CODE_STEPS, dtype)
        keys = from_stored(to_stored(keys, KEY_STEPS, row.keys.dtype), KEY_STEPS, dtype)
        if config.working:
            slots, mask = write_working(codes, config.k, config.c_w)
            row = replace(row, working=slots[None], working_mask=mask[None], latest=(session.index,))
        if self.episodic is not None:
            slots, mask = self.episodic(row.episodic[0], row.episodic_mask[0], codes, keys)
            row = replace(row, episodic=slots[None], episodic_mask=mask[None])
        bank = SemanticRow.of(row)
        if self.semantic is not None:
            nodes = session_nodes(session, self.extract)
            bank = self.semantic.append(bank, codes, keys, features.tokens, features.pieces, nodes)
        return replace(row, sessions=(row.sessions[0] + 1,)), bank

    @torch.no_grad()
    def forget(
        self,
        state: MemoryState,
        row: int = 0,
        *,
        session: int | None = None,
        entity: str | None = None,
        since: date | None = None,
    ) -> MemoryState:
        """Take out of one conversation what came from a session, from an entity, or from some day on.

        The event nodes go, with their text and token slots, and links to them; a turn they superseded is found again,
        unless a later turn repeats it too. Working memory is cleared where it holds such a session. The episodic layer
        is emptied and written anew from the sessions that the semantic layer still holds, and salience and embeddings
        are computed anew. What is left is therefore a function of the nodes that stay, and equal to a state that never
        met what was forgotten, as long as no turn was pruned or cut to ``node_tokens``; blends of sessions that the
        semantic layer has dropped go too, since nothing tells them apart.

        What came from an entity is known of the turns that are still nodes. A state without semantic memory keeps no
        provenance but the session of its working memory: its episodic slots are all cleared.

        Args:
            state: the memories.
            row: the conversation.
            session: see :func:`mlmf.memory.forget.what_goes`, as for ``entity`` and ``since``.
            entity: who or what.
            since: a day or moment.

        Returns:
            The new state; ``state`` is unchanged.

        Raises:
            UserError: not exactly one thing to forget, no such conversation, or an entity without semantic memory.
        """
        if not 0 <= row < state.batch_size:
            raise UserError(f"no conversation {row} in a state of {state.batch_size}: count from 0")
        if entity is not None and self.semantic is None:
            raise UserError(f"cannot forget {entity!r}: without semantic memory nothing knows who said what")
        rows = state.split()
        gone = what_goes(rows[row].nodes[0], session=session, entity=entity, since=since)
        rows[row] = forget_row(rows[row], gone, self.episodic, self.semantic)
        return MemoryState.cat(rows)
