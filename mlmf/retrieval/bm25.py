"""BM25 over stemmed English words, through ``bm25s`` and ``PyStemmer``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlmf.errors import UserError
from mlmf.retrieval.base import Hit, Index, best_hits

if TYPE_CHECKING:
    import bm25s


class BM25Index(Index):
    """Okapi BM25 in Lucene's form; a text that shares no word with the query is no hit."""

    def __init__(self, *, k1: float = 1.5, b: float = 0.75) -> None:
        """Start empty.

        Args:
            k1: how soon repeating a word stops to count.
            b: how much a long text is held back, 0 to 1.

        Raises:
            UserError: the extra ``retrieval`` is not installed.
        """
        try:
            import bm25s
            import Stemmer
        except ImportError as error:
            raise UserError(
                "BM25 needs bm25s and PyStemmer, which are not installed: pip install 'mlmf[retrieval]'"
            ) from error
        self.k1, self.b = k1, b
        self._library = bm25s
        self._stemmer = Stemmer.Stemmer("english")
        self._words: list[list[str]] = []
        self._scorer: bm25s.BM25 | None = None

    def __len__(self) -> int:
        """How many texts were added."""
        return len(self._words)

    def add(self, texts: Sequence[str]) -> None:
        """Append texts; the statistics of the whole are made anew at the next search."""
        if texts:
            self._words += self._tokenize(texts)
            self._scorer = None

    def search(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """Rank by BM25 score."""
        if not any(self._words) or not queries:
            return [[] for _ in queries]
        scorer = self._scorer = self._scorer or self._fit()
        found = []
        for words in self._tokenize(queries):
            known = scorer.get_tokens_ids(words)
            scores = scorer.get_scores_from_ids(known) if known else np.zeros(len(self), np.float32)
            found.append(best_hits(np.where(scores > 0, scores, -np.inf), count))
        return found

    def _fit(self) -> bm25s.BM25:
        scorer = self._library.BM25(k1=self.k1, b=self.b, method="lucene")
        scorer.index(self._words, show_progress=False)
        return scorer

    def _tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        # stop words stay: "who", "when" and "with" do say something about a turn, and idf makes them count little
        return self._library.tokenize(
            list(texts), stopwords=[], stemmer=self._stemmer, return_ids=False, show_progress=False
        )
