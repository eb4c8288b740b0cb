"""What is searched: the keys of a state's event nodes and how the nodes lie, whole or in part; and the words they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlmf.memory.keys import QueryKeys
from mlmf.memory.layout import Layout
from mlmf.memory.rarity import Rarity
from mlmf.memory.rounding import KEY_STEPS, from_stored
from mlmf.memory.state import MemoryState


@dataclass(frozen=True)
class FindBank:
    """Token keys ``(B, M, K)``, their ids and owners ``(B, M)``, embeddings ``(B, N, K)`` and salience ``(B, N)``."""

    keys: Tensor
    tokens: Tensor
    owner: Tensor
    embedding: Tensor
    salience: Tensor
    layout: Layout

    @classmethod
    def of(cls, state: MemoryState) -> FindBank:
        """All that a state holds."""
        return cls(state.keys, state.tokens, state.owner, state.embedding, state.salience, state.layout)

    @property
    def size(self) -> int:
        """``N``."""
        return self.salience.shape[1]

    def row(self, i: int) -> FindBank:
        """One conversation of the batch, with its padding."""
        return FindBank(
            self.keys[i, None],
            self.tokens[i, None],
            self.owner[i, None],
            self.embedding[i, None],
            self.salience[i, None],
            self.layout.row(i),
        )

    def float_keys(self) -> Tensor:
        """Keys in float32, whatever they are stored in."""
        return from_stored(self.keys, KEY_STEPS, torch.float32)

    def take(self, kept: Tensor) -> FindBank:
        """Some places of a single conversation, in ascending order, ``(n,)``."""
        place = torch.full((self.size + 1,), -1, device=kept.device)
        place[kept] = torch.arange(len(kept), device=kept.device)  # an empty slot's owner -1 reads the last entry, -1
        owner = place[self.owner[0]]
        slots = (owner >= 0).nonzero().squeeze(-1)
        return FindBank(
            self.keys[:, slots],
            self.tokens[:, slots],
            owner[slots][None],
            self.embedding[:, kept],
            self.salience[:, kept],
            self.layout.take(kept),
        )


@dataclass(frozen=True)
class SharedWords:
    """Tokens that a query shares with nodes ``(B, N)`` and with sessions ``(B, S + 1)``, by number, rare ones more."""

    nodes: Tensor
    sessions: Tensor

    @classmethod
    def of(cls, query: QueryKeys, bank: FindBank, of_turns: Rarity, of_sessions: Rarity) -> SharedWords:
        """Look up the tokens of the queries: each different one once, however many queries have it."""
        layout = bank.layout
        wanted = query.tokens[query.mask].unique()
        row, slot = (torch.isin(bank.tokens, wanted) & (bank.owner >= 0)).nonzero().T
        word, node = torch.searchsorted(wanted, bank.tokens[row, slot]), bank.owner[row, slot]
        by_node = torch.zeros(len(bank.tokens), len(wanted), bank.size, device=wanted.device)
        by_node[row, word, node] = 1
        by_session = by_node.new_zeros(len(bank.tokens), len(wanted), layout.most_sessions + 1)
        by_session[row, word, layout.session[row, node]] = 1
        asked = (query.tokens[..., None] == wanted) & query.mask[..., None]
        counts = asked.sum(1, dtype=torch.float32)[:, None]  # (B, 1, U)
        return cls(
            (counts @ of_turns(by_node, wanted, layout.n_nodes)).squeeze(1),
            (counts @ of_sessions(by_session, wanted, layout.n_sessions)).squeeze(1),
        )

    def take(self, row: int, kept: Tensor) -> SharedWords:
        """Those of one query and some places."""
        return SharedWords(self.nodes[row, kept][None], self.sessions[row, None])
