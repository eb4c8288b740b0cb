"""Settings of Cognis."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError


@dataclass
class CognisSettings:
    """How Cognis keeps and finds memories; the defaults need no network and no language model."""

    extractor: Literal["rules", "llm"] = "rules"
    """What takes facts from messages: the built-in rules for English, or the model of llm."""
    llm: ChatSettings = field(default_factory=ChatSettings)
    """The model behind extractor llm; with neither model nor base_url it is base_model."""
    llm_tokens: int = 512
    """Its longest reply, in tokens."""
    similar: int = 5
    """The most known facts that a new one is held against, beside those of its topic."""
    documents: str | None = None
    """Where memories are kept: path of an SQLite file, or opensearch://[name:password@]host:port/prefix; null keeps them in
    a temporary file."""
    vectors: str | None = None
    """Where vectors are kept: path ending in .db of a Milvus Lite folder, or http://host:port of a Milvus server; null
    holds them in memory, filled from documents."""
    shortlist_width: int | None = None
    """Numbers of the vectors that find the shortlist; null takes a third of the encoder's (256 of 768)."""
    shortlist: int = 200
    """Memories on the shortlist, which vectors of full width rank; also how deep BM25 goes."""
    vector_weight: float = 0.7
    """Share of the vectors in the fusion, 0 to 1; BM25 has the rest."""
    rank_offset: int = 10
    """k of reciprocal rank fusion: the larger, the less the first ranks stand out."""
    temporal_weight: float = 0.4
    """Share of nearness in time in the score, for questions that name a time, 0 to 1."""
    recency_weight: float = 0.25
    """What the newest memory gains, as a share of the best score, for questions about now."""
    recency_days: float = 30.0
    """After so many days that gain is a third of it."""
    entity_weight: float = 0.1
    """What a memory gains that mentions every name and thing of the question, as a share of the best score."""
    reranker: str | None = None
    """Cross-encoder (local path or Hugging Face id, such as BAAI/bge-reranker-v2-m3) that orders the best anew; null: none."""
    rerank_count: int = 50
    """How many of the best it reads."""
    use_analysis: bool = True
    """Stage: read days, names and recency words of the question; off, the two boosts have nothing to go by."""
    use_vectors: bool = True
    """Stage: search by meaning."""
    use_shortlist: bool = True
    """Stage: narrow vectors first; off, all vectors are compared at full width."""
    use_words: bool = True
    """Stage: search by BM25."""
    use_messages: bool = True
    """Search raw messages beside facts; off, only those of which no fact was extracted yet."""
    use_temporal: bool = True
    """Stage: prefer memories of the time that the question names, or new ones where it asks about now."""
    use_versions: bool = True
    """Stage: of each fact show the current version alone, unless the question asks about the past."""

    def __post_init__(self) -> None:
        """Refuse values that no search can be made with."""
        for name in ("llm_tokens", "similar", "shortlist", "rank_offset", "rerank_count"):
            if getattr(self, name) < 1:
                raise UserError(f"cognis.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("vector_weight", "temporal_weight"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"cognis.{name} must be in [0, 1], got {getattr(self, name)}")
        for name in ("recency_weight", "entity_weight"):
            if getattr(self, name) < 0:
                raise UserError(f"cognis.{name} must be at least 0, got {getattr(self, name)}")
        if self.recency_days <= 0:
            raise UserError(f"cognis.recency_days must be more than 0, got {self.recency_days}")
        if self.shortlist_width is not None and self.shortlist_width < 1:
            raise UserError(f"cognis.shortlist_width must be at least 1, got {self.shortlist_width}")
        if not self.use_vectors and not self.use_words:
            raise UserError("cognis.use_vectors and cognis.use_words are both false, so nothing can be found")

    @property
    def changing_answers(self) -> dict[str, Any]:
        """What may change an answer, by name; where memories are kept does not."""
        values = asdict(self)
        for name in ("documents", "vectors"):
            values.pop(name)
        values["llm"] = self.llm.described if self.extractor == "llm" else None
        return values
