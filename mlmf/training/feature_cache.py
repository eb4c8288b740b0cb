"""Session features, read once by the frozen base model and kept on disk by the hash of what they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mlmf.memory.features import SessionFeatures, session_pieces
from mlmf.model import MLMFModel
from mlmf.paths import atomic_path
from mlmf.types import Session


class FeatureCache:
    """A folder of safetensors files, one per distinct session text, for one base model, choice of layers and codec."""

    def __init__(self, model: MLMFModel, root: Path) -> None:
        """Use a folder of ``root/features``."""
        self.model, self.root = model, root / "features"

    @property
    def folder(self) -> Path:
        """The folder of the model as it is: a codec that is calibrated, or loaded from a checkpoint, has another one."""
        digest = hashlib.sha256(f"{self.model.features_fingerprint} {self.model.lm.dtype}".encode())
        return self.root / digest.hexdigest()[:16]

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
            for (path, _), features in zip(part, self.model.features([s for _, s in part]), strict=True):
                tokens += features.n_tokens
                tensors = {"codes": features.codes, "keys": features.keys}
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
