"""Session features of the frozen base model, computed once and kept on disk by the hash of what they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.progress import Progress
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mlmf.memory.features import SessionFeatures, session_pieces
from mlmf.model import MLMFModel
from mlmf.paths import atomic_path
from mlmf.types import Session


class FeatureCache:
    """A folder of safetensors files, one per distinct session text, for one base model and choice of layers."""

    def __init__(self, model: MLMFModel, root: Path) -> None:
        """Use ``root/features/<hash of model and layers>``."""
        digest = hashlib.sha256(f"{model.fingerprint} {model.lm.dtype}".encode())
        self.model, self.folder = model, root / "features" / digest.hexdigest()[:16]

    def path(self, session: Session) -> Path:
        """Where the features of a session are kept: the text decides, not where it stands."""
        key = hashlib.sha256("\x00".join(session_pieces(session)).encode()).hexdigest()[:32]
        return self.folder / key[:2] / f"{key}.safetensors"

    def fill(self, sessions: Sequence[Session], progress: Progress | None = None, batch: int = 32) -> int:
        """Compute what is missing; returns the number of tokens read. Can be stopped and taken up again."""
        wanted = {path: session for session in sessions if not (path := self.path(session)).exists()}
        missing = sorted(wanted.items(), key=lambda item: sum(len(turn.text) for turn in item[1].turns))
        task = progress.add_task("reading sessions", total=len(missing)) if progress and missing else None
        tokens = 0
        for start in range(0, len(missing), batch):
            part = missing[start : start + batch]
            for (path, _), features in zip(part, self.model.encoder.encode([s for _, s in part]), strict=True):
                tokens += features.n_tokens
                tensors = {"states": features.states, "keys": features.keys}
                tensors |= {"tokens": features.tokens, "pieces": features.pieces}
                with atomic_path(path) as partial:
                    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, partial)
            if progress and task is not None:
                progress.advance(task, len(part))
        return tokens

    def load(self, session: Session) -> SessionFeatures:
        """Features of a session, computed now if they are missing or their file is damaged."""
        path = self.path(session)
        if not path.exists():
            self.fill([session])
        try:
            return SessionFeatures(**load_file(path))
        except SafetensorError:
            path.unlink()
            self.fill([session])
            return SessionFeatures(**load_file(path))

    def sample_keys(self, sessions: Sequence[Session], count: int = 64) -> torch.Tensor:
        """Key-layer states of up to ``count`` sessions spread over the data, ``(n, D)``, to calibrate keys with."""
        step = max(1, len(sessions) // count)
        return torch.cat([self.load(session).keys for session in sessions[::step][:count]])
