"""The memory of a batch of conversations: one immutable value, passed in and returned, never kept on a module."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mlmf.errors import UserError
from mlmf.memory.describe import describe
from mlmf.memory.graph import to_networkx
from mlmf.memory.layout import Layout
from mlmf.memory.nodes import Node
from mlmf.paths import atomic_path, check_writable_folder

__all__ = ["STATE_FORMAT", "MemoryState", "Node", "pad_to"]

STATE_FORMAT = "mlmf-state-3"


@dataclass(frozen=True)
class MemoryState:
    """Working, episodic and semantic memory of ``B`` conversations.

    A slot is a code: what :class:`mlmf.memory.codec.StateCodec` makes of the wrapped model's states of a token. Masks
    are True where a slot is filled. The semantic layer is a bank of ``M`` token slots, each owned by one of ``N`` event
    nodes; ``M`` and ``N`` are those of the fullest conversation of the batch and bounded by the capacities. Its codes
    and keys may be stored in eight bits, see :mod:`mlmf.memory.rounding`; everything else is in the model's dtype.
    """

    working: Tensor
    """``(B, C_w, R)``"""
    working_mask: Tensor
    """``(B, C_w)`` bool"""
    episodic: Tensor
    """``(B, C_e, R)``"""
    episodic_mask: Tensor
    """``(B, C_e)`` bool"""
    values: Tensor
    """Codes of the event nodes' tokens, ``(B, M, R)``."""
    keys: Tensor
    """What finds them, ``(B, M, K)``, unit length."""
    tokens: Tensor
    """Their token ids, ``(B, M)``."""
    owner: Tensor
    """The event node a token slot belongs to, ``(B, M)``; -1 where empty."""
    embedding: Tensor
    """Event node embeddings ``E`` after message passing, ``(B, N, K)``, unit length."""
    pooled: Tensor
    """The same before message passing, ``(B, N, K)``."""
    salience: Tensor
    """What decides which nodes survive the capacity, ``(B, N)``."""
    nodes: tuple[tuple[Node, ...], ...]
    """Provenance, per conversation, in the order in which sessions were written."""
    sessions: tuple[int, ...]
    """Sessions remembered so far and not forgotten, per conversation."""
    latest: tuple[int, ...]
    """Index of the session that working memory holds, per conversation; -1 where it is empty."""
    fingerprint: str = ""
    """Which base model, layers, codec and key projection the slots come from."""

    @property
    def batch_size(self) -> int:
        """Conversations held."""
        return self.working.shape[0]

    @property
    def n_bytes(self) -> int:
        """Size of the tensors."""
        return sum(t.numel() * t.element_size() for t in self._tensors().values())

    @property
    def semantic_mask(self) -> Tensor:
        """Filled token slots of the semantic layer, ``(B, M)``."""
        return self.owner >= 0

    @cached_property
    def layout(self) -> Layout:
        """How the event nodes lie; worked out at the first search and kept, since a state never changes."""
        return Layout.of(self.nodes, self.salience.shape[1], self.owner.device)

    def is_empty(self) -> bool:
        """True before anything was remembered in any conversation."""
        return not any(self.sessions)

    def held_sessions(self, row: int) -> set[int]:
        """Indices of the sessions that a conversation is known to hold something of."""
        return {node.session for node in self.nodes[row]} | ({self.latest[row]} - {-1})

    def _tensors(self) -> dict[str, Tensor]:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in values if isinstance(value, Tensor)}

    def _map(self, function: Callable[[Tensor], Tensor]) -> MemoryState:
        changed: dict[str, Any] = {name: function(value) for name, value in self._tensors().items()}
        return replace(self, **changed)

    def detach(self) -> MemoryState:
        """Cut the gradient: the border of truncated back-propagation through time."""
        return self._map(lambda t: t.detach())

    def to(self, device: torch.device | str) -> MemoryState:
        """Move every tensor to a device."""
        return self._map(lambda t: t.to(device))

    def select(self, rows: Sequence[int]) -> MemoryState:
        """The memories of some conversations, in the given order; a row may be repeated."""
        index = torch.as_tensor(list(rows), dtype=torch.long, device=self.working.device)
        chosen = self._map(lambda t: t.index_select(0, index))
        kept: dict[str, Any] = {name: tuple(getattr(self, name)[i] for i in rows) for name in _PROVENANCE}
        return replace(chosen, **kept)

    def split(self) -> list[MemoryState]:
        """Each conversation as a state of its own, without the padding it needed in the batch; :meth:`cat` joins them."""
        return [self._row(i) for i in range(self.batch_size)]

    def _row(self, i: int) -> MemoryState:
        one = self.select([i])
        m, n = int(one.semantic_mask.sum()), len(one.nodes[0])
        cut: dict[str, Any] = {name: getattr(one, name)[:, :m] for name in _PER_TOKEN}
        cut |= {name: getattr(one, name)[:, :n] for name in _PER_NODE}
        return replace(one, **cut)

    @staticmethod
    def cat(states: Sequence[MemoryState]) -> MemoryState:
        """Join the conversations of several states of the same model into one batch."""
        first = states[0]
        for state in states:
            if state.fingerprint != first.fingerprint:
                raise UserError(
                    f"states of different models cannot be joined: {first.fingerprint!r} and {state.fingerprint!r}"
                )
            if state.values.dtype != first.values.dtype:
                raise UserError(
                    f"slots of {first.values.dtype} and {state.values.dtype} cannot be joined: remember the sessions "
                    "of both with the same setting of slots"
                )
        joined: dict[str, Any] = {}
        for name in first._tensors():
            parts = [getattr(s, name) for s in states]
            if name in (*_PER_TOKEN, *_PER_NODE):
                rows = [row for part in parts for row in part]
                joined[name] = pad_sequence(rows, batch_first=True, padding_value=-1 if name == "owner" else 0)
            else:
                joined[name] = torch.cat(parts)
        joined |= {name: tuple(row for s in states for row in getattr(s, name)) for name in _PROVENANCE}
        return replace(first, **joined)

    def describe(self, i: int = 0, c_s: int | None = None, c_m: int | None = None) -> str:
        """A few lines for people: what the layers of conversation ``i`` hold, its strongest turns, its versions.

        ``c_s`` and ``c_m``, the capacities of the semantic layer, are shown where they are given: a state does not know
        them.
        """
        return describe(self._row(self._checked(i)), c_s, c_m)

    def graph(self, i: int = 0) -> nx.MultiGraph:
        """The entity-event graph of conversation ``i``; see :func:`mlmf.memory.graph.to_networkx` for its attributes."""
        n = len(self.nodes[self._checked(i)])
        embedding = self.embedding[i, :n].detach().float().cpu().numpy()
        return to_networkx(self.nodes[i], self.salience[i, :n].detach().tolist(), embedding)

    def graph_json(self, i: int = 0) -> dict[str, Any]:
        """:meth:`graph` as node-link data that ``json.dump`` takes and :func:`networkx.node_link_graph` reads."""
        data: dict[str, Any] = nx.node_link_data(self.graph(i), edges="edges")
        return data

    def _checked(self, i: int) -> int:
        if not 0 <= i < self.batch_size:
            raise UserError(f"no conversation {i} in a state of {self.batch_size}: count from 0")
        return i

    def _fits_together(self) -> bool:
        """Whether the parts are of one size: a file may have been written by something else, or changed."""
        rows = {len(self.nodes), len(self.sessions), len(self.latest), *(t.shape[0] for t in self._tensors().values())}
        slots, places = ({getattr(self, name).shape[1] for name in names} for names in (_PER_TOKEN, _PER_NODE))
        masked = all(
            layer.shape[:2] == mask.shape
            for layer, mask in ((self.working, self.working_mask), (self.episodic, self.episodic_mask))
        )
        if not masked or not len(rows) == len(slots) == len(places) == 1:
            return False
        counts = torch.tensor([len(row) for row in self.nodes], device=self.owner.device)
        return bool((self.owner < counts[:, None]).all() and (counts <= places.pop()).all())

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically. It holds what the conversation told the model, and no weights.

        Parent folders are created.

        Raises:
            UserError: ``path`` is a folder, or its folder cannot be made or written.
        """
        path = Path(path)
        if path.is_dir():
            raise UserError(f"path {path}: is a folder; give the file to write, such as {path / 'memory.safetensors'}")
        check_writable_folder(path.parent, "path")
        meta = {
            "format": STATE_FORMAT,
            "fingerprint": self.fingerprint,
            "sessions": json.dumps(self.sessions),
            "latest": json.dumps(self.latest),
            "nodes": json.dumps([[asdict(node) for node in row] for row in self.nodes], ensure_ascii=False),
        }
        with atomic_path(path) as temporary:
            save_file({name: t.detach().contiguous().cpu() for name, t in self._tensors().items()}, temporary, meta)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> MemoryState:
        """Read what :meth:`save` wrote, equal to the byte.

        Raises:
            UserError: no such file, not a memory state, or a damaged one.
        """
        if not Path(path).is_file():
            raise UserError(f"no memory state at {path}: give a file written by MemoryState.save")
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                meta = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} is not a safetensors file: {error}") from error
        if meta.get("format") != STATE_FORMAT:
            raise UserError(
                f"{path} is not a memory state of this version: format {meta.get('format')!r}, wanted {STATE_FORMAT!r}. "
                "Remember the sessions again"
            )
        missing = sorted({f.name for f in fields(cls)} - {*_PROVENANCE, "fingerprint"} - tensors.keys())
        if missing:
            raise UserError(f"{path} is incomplete: {missing[0]} is missing. Remember the sessions again")
        try:
            state = cls(
                **tensors,
                nodes=tuple(tuple(_read_node(node) for node in row) for row in json.loads(meta["nodes"])),
                sessions=tuple(json.loads(meta["sessions"])),
                latest=tuple(json.loads(meta["latest"])),
                fingerprint=meta["fingerprint"],
            )
            whole = state._fits_together()
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is damaged: {error!r}. Remember the sessions again, or take a copy of the file"
            ) from error
        if not whole:
            raise UserError(
                f"{path} is damaged: its tensors are not those of its turns. Remember the sessions again, or take a copy of the file"
            )
        return state


_PER_TOKEN = ("values", "keys", "tokens", "owner")
_PER_NODE = ("embedding", "pooled", "salience")
_PROVENANCE = ("nodes", "sessions", "latest")
"""The fields that have an entry for each conversation and are no tensors."""


def _read_node(written: dict[str, Any]) -> Node:
    """JSON knows no tuples."""
    newer = written["superseded_by"]
    return Node(
        **{
            **written,
            "entities": tuple(written["entities"]),
            "superseded_by": None if newer is None else (newer[0], newer[1]),
        }
    )


def pad_to(tensor: Tensor, dim: int, size: int, value: float = 0) -> Tensor:
    """Grow one dimension to ``size`` with a constant at its end."""
    missing = size - tensor.shape[dim]
    if missing == 0:
        return tensor
    pad = [0, 0] * (tensor.dim() - 1 - dim) + [0, missing]
    return F.pad(tensor, pad, value=value)
