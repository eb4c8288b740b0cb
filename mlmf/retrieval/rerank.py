"""A cross-encoder reads question and text together and orders anew what cheaper searches have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mlmf.errors import UserError
from mlmf.hub import ModelKind
from mlmf.retrieval.sentence_models import load_sentence_model

RERANKERS = ModelKind(setting="reranker")


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
        self._model, _ = load_sentence_model("CrossEncoder", name, RERANKERS, device=device)
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
