"""A cross-encoder reads question and text together and orders anew what cheaper searches have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from safetensors import SafetensorError

from mlmf.errors import UserError
from mlmf.hub import ModelKind, first_line, no_progress_bar, resolve_model


class Reranker(Protocol):
    """Orders texts by how well they answer a query."""

    def order(self, query: str, texts: Sequence[str]) -> list[int]:
        """Positions of ``texts``, best first, ties as they were."""


class CrossEncoderReranker:
    """Any ``CrossEncoder`` of ``sentence-transformers`` with one score a pair."""

    def __init__(self, name: str, *, device: str | None = None, batch_size: int = 64) -> None:
        """Load a cross-encoder.

        Args:
            name: local folder or Hugging Face id, such as ``BAAI/bge-reranker-v2-m3``.
            device: by default CUDA where there is one.
            batch_size: pairs scored together.

        Raises:
            UserError: the extra ``retrieval`` is not installed, the weights cannot be found or loaded, or the model
                gives several scores a pair.
        """
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise UserError(
                "reranking needs sentence-transformers, which is not installed: pip install 'mlmf[retrieval]'"
            ) from error
        folder = resolve_model(name, _RERANKERS)
        try:
            with no_progress_bar():
                self._model = CrossEncoder(
                    str(folder),
                    device=device,
                    local_files_only=True,
                    model_kwargs={"use_safetensors": True, "dtype": "float32"},
                )
        except (OSError, ValueError, SafetensorError) as error:
            raise UserError(
                f"reranker {name!r}: no cross-encoder can be loaded from {folder}: {first_line(error)}"
            ) from error
        if self._model.num_labels != 1:
            raise UserError(
                f"reranker {name!r} gives {self._model.num_labels} scores a pair; one that ranks gives one, such as "
                "BAAI/bge-reranker-v2-m3"
            )
        self._batch_size = batch_size

    def order(self, query: str, texts: Sequence[str]) -> list[int]:
        """Positions of ``texts``, best first."""
        if not texts:
            return []
        pairs = [(query, text) for text in texts]
        scores = self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False).tolist()
        return sorted(range(len(texts)), key=lambda position: -scores[position])


_RERANKERS = ModelKind(setting="reranker", known={}, folder="rerankers", unpack=lambda wheel, scratch: scratch)
