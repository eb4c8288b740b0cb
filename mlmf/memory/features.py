"""What the frozen base model makes of one session: the raw material of every memory layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlmf.types import Session, format_date


@dataclass(frozen=True)
class SessionStates:
    """One session as the frozen base model reads it.

    ``states`` holds the inputs of the fusion layers, ``(L, S, D)``; ``keys`` the input of the key layer, ``(S, D)``;
    ``tokens`` the ids, ``(S,)``; ``pieces`` says which piece of text a token belongs to, ``(S,)``: 0 is the date line,
    ``i + 1`` the session's turn ``i``. The first token of the input is no memory: it is an attention sink, whose state
    says nothing about the text and drowns the rest when it is read. It is dropped before these are made.
    """

    states: Tensor
    keys: Tensor
    tokens: Tensor
    pieces: Tensor


@dataclass(frozen=True)
class SessionFeatures:
    """One session as memory takes it: :class:`SessionStates` with codes ``(S, R)`` in place of the states.

    What training keeps on disk. Keys are still states of the key layer, which a projection turns into keys at each write.
    """

    codes: Tensor
    keys: Tensor
    tokens: Tensor
    pieces: Tensor

    @property
    def n_tokens(self) -> int:
        """Tokens of the session that have a code."""
        return self.tokens.shape[0]

    def to(self, device: torch.device, dtype: torch.dtype) -> SessionFeatures:
        """Move to a device; codes and keys also to a dtype."""
        return SessionFeatures(
            self.codes.to(device, dtype), self.keys.to(device, dtype), self.tokens.to(device), self.pieces.to(device)
        )


def session_pieces(session: Session) -> list[str]:
    """The session as the base model reads it: a date line, then one line per turn."""
    return [f"[{format_date(session.date)}]\n"] + [f"{turn.speaker}: {turn.content}\n" for turn in session.turns]
