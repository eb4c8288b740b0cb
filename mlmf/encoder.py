"""Reading sessions and queries with the frozen base model, up to the last layer whose state is wanted and no further."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.memory.features import SessionStates, session_pieces
from mlmf.types import Session

_MAX_WINDOW = 4096
LEAST_FILL = 0.9
"""Shortest of the sessions read together on a CPU, of the longest."""
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""What configs call the number of positions; those that name none have no limit."""


class _LastLayerReached(Exception):
    """Raised inside a forward pass once every wanted state is known: the layers above are not computed."""


class OneAtATime(AbstractContextManager[None]):
    """A lock for everything that passes through the wrapped model's hooks; its holder may take it again.

    What a layer reads and whether it is adapted are states of the model for as long as a call lasts, so calls of
    several threads take turns. A copy of a model gets a lock of its own.
    """

    def __init__(self) -> None:
        """Start free."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Wait for other threads."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Let the next one in."""
        self._lock.release()

    def __reduce__(self) -> tuple[type[OneAtATime], tuple[()]]:
        """Copies and pickles are new locks: the one of Python can be neither copied nor pickled."""
        return OneAtATime, ()


def hidden_states_of(args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Tensor:
    """The hidden states a decoder layer was called with, by position or by name."""
    return args[0] if args else kwargs["hidden_states"]


class BaseEncoder:
    """Inputs of chosen decoder layers for batches of token ids, without gradient and without adapters."""

    def __init__(
        self,
        lm: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        layers: nn.ModuleList,
        fusion_layers: Sequence[int],
        key_layer: int,
        base_only: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Read ``lm`` through hooks on ``layers``; ``base_only`` switches adapters and fusion off while it does."""
        self.lm, self.tokenizer, self.layers = lm, tokenizer, layers
        self.fusion_layers, self.key_layer, self.base_only = list(fusion_layers), key_layer, base_only

    @property
    def window(self) -> int:
        """Tokens read in one pass, at most the model's positions; longer sessions are read in several."""
        config = self.lm.config.get_text_config()
        named = [getattr(config, name, None) for name in _POSITIONS]
        return min([_MAX_WINDOW, *(int(positions) for positions in named if positions)])

    @contextmanager
    def _capture(self, wanted: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        captured: dict[int, Tensor] = {}

        def keep(index: int) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor]], None]:
            def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
                captured[index] = hidden_states_of(args, kwargs)
                if len(captured) == len(set(wanted)):
                    raise _LastLayerReached

            return hook

        handles = [
            self.layers[index].register_forward_pre_hook(keep(index), with_kwargs=True) for index in set(wanted)
        ]
        try:
            yield captured
        except _LastLayerReached:
            pass
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def states(self, ids: Tensor, wanted: Sequence[int]) -> dict[int, Tensor]:
        """Inputs of the decoder layers ``wanted``, ``(B, S, D)`` each, for right-padded ids ``(B, S)``.

        Raises:
            ValueError: ``S`` exceeds :attr:`window`; a caller decides what of a longer text is read.
        """
        if ids.shape[1] > self.window:
            raise ValueError(f"{ids.shape[1]} tokens in one pass, but the window of this model is {self.window}")
        with self.base_only():
            # switching modes walks over all modules, which takes as long as reading a few tokens
            training = self.lm.training
            if training:
                self.lm.eval()
            try:
                with self._capture(wanted) as captured:
                    self.lm(input_ids=ids.to(self.lm.device), use_cache=False)
            finally:
                if training:
                    self.lm.train()
        return captured

    def tokenize(self, session: Session) -> tuple[list[int], list[int]]:
        """Ids of a session and, for each, the piece it belongs to; pieces are tokenised apart, so borders are exact."""
        encoded = self.tokenizer(session_pieces(session), add_special_tokens=False)["input_ids"]
        return [i for ids in encoded for i in ids], [p for p, ids in enumerate(encoded) for _ in ids]

    def encode(self, sessions: Sequence[Session], batch_tokens: int = 4096) -> list[SessionStates]:
        """States of each session, in order; sessions of similar length are read together."""
        chunks: list[tuple[int, list[int], list[int]]] = []
        for number, session in enumerate(sessions):
            ids, pieces = self.tokenize(session)
            size = self.window
            chunks += [(number, ids[i : i + size], pieces[i : i + size]) for i in range(0, len(ids), size)]
        order = sorted(range(len(chunks)), key=lambda c: len(chunks[c][1]))
        encoded: dict[int, SessionStates] = {}
        while order:
            batch = [order.pop()]
            longest = len(chunks[batch[0]][1])
            least = LEAST_FILL * longest if self.lm.device.type == "cpu" else 0
            # there padding costs as much as text, and reading together saves a fifth at most
            while order and (len(batch) + 1) * longest <= batch_tokens and len(chunks[order[-1]][1]) >= least:
                batch.append(order.pop())
            features = self._encode_chunks([chunks[c] for c in batch])
            encoded |= dict(zip(batch, features, strict=True))
        parts: list[list[SessionStates]] = [[] for _ in sessions]
        for c, (number, _, _) in enumerate(chunks):
            parts[number].append(encoded[c])
        return [part[0] if len(part) == 1 else _concatenate(part) for part in parts]

    def _encode_chunks(self, chunks: Sequence[tuple[int, list[int], list[int]]]) -> list[SessionStates]:
        size = max(len(ids) for _, ids, _ in chunks)
        padded = torch.tensor([ids + [0] * (size - len(ids)) for _, ids, _ in chunks])
        captured = self.states(padded, [*self.fusion_layers, self.key_layer])
        return [
            SessionStates(
                states=torch.stack([captured[layer][row, 1 : len(ids)] for layer in self.fusion_layers]),
                keys=captured[self.key_layer][row, 1 : len(ids)].clone(),
                tokens=torch.tensor(ids[1:], dtype=torch.long),
                pieces=torch.tensor(pieces[1:], dtype=torch.long),
            )
            for row, (_, ids, pieces) in enumerate(chunks)
        ]


def _concatenate(parts: Sequence[SessionStates]) -> SessionStates:
    return SessionStates(
        torch.cat([p.states for p in parts], 1),
        torch.cat([p.keys for p in parts]),
        torch.cat([p.tokens for p in parts]),
        torch.cat([p.pieces for p in parts]),
    )
