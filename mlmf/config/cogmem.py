"""Settings of the system cogmem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError

# where things are kept, which changes no answer and may name a place on this machine
_PLACES = ("sessions", "vectors", "session_hours")


@dataclass
class CogMemSettings:
    """CogMem: long-term memory, direct-access notes, a focus of attention."""

    focus_of_attention: bool = True
    """Answer from a small window made anew for each input; off is the baseline, the latest turns as they were said."""
    direct_access: bool = True
    """Keep the notes of a session; they reach the model through the focus of attention."""
    long_term: bool = True
    """Keep insights of ended sessions, and begin a session with those that fit."""
    extractor: Literal["rules", "llm"] = "rules"
    """Who plays the agents: rules that need no model, or the two models below."""
    memory_agent: ChatSettings = field(default_factory=ChatSettings)
    """With extractor llm: writes notes and reviews sessions; base_model if it names none."""
    reasoning_agent: ChatSettings = field(default_factory=ChatSettings)
    """With extractor llm: says which turns are missing; base_model if it names none. In a chat it also answers."""
    agent_tokens: int = 512
    """Longest reply of an agent, in tokens."""
    focus_tokens: int = 600
    """Token budget of a chat's window, and of what the reasoning agent judges; answers in the harness have window_tokens."""
    insight_share: float = 0.2
    """Share of a budget for insights of long-term memory."""
    notes_share: float = 0.1
    """Share of a budget for notes. What a part leaves over goes to turns in full."""
    history_share: float = 0.3
    """Share of focus_tokens for the turns as one line each."""
    insights: int = 8
    """The most insights a session begins with."""
    notes: int = 24
    """The most notes that rules keep."""
    missing_turns: int = 5
    """The most turns that rules ask for in a chat; in the harness it is retrieved_turns."""
    merge_similarity: float = 0.9
    """Cosine from which rules take two insights to be about the same."""
    sessions: str | None = None
    """Where sessions are kept: null for RAM, redis://host:6379/0, or a SQLite file. The harness asks nothing of the past."""
    vectors: str | None = None
    """Where the vectors of insights are kept: null for RAM, a path ending in .db for Milvus Lite, or a Milvus server."""
    session_hours: float = 24.0
    """Hours without use after which a session is reviewed and removed."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name in ("agent_tokens", "focus_tokens", "insights", "notes", "missing_turns"):
            if getattr(self, name) < 1:
                raise UserError(f"cogmem.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("insight_share", "notes_share", "history_share", "merge_similarity"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"cogmem.{name} must be in [0, 1], got {getattr(self, name)}")
        together = self.insight_share + self.notes_share + self.history_share
        if together > 1.0:
            raise UserError(
                f"cogmem.insight_share, notes_share and history_share must be at most 1 together, got {together:g}"
            )
        if self.session_hours <= 0:
            raise UserError(f"cogmem.session_hours must be more than 0, got {self.session_hours}")
        if not self.focus_of_attention and (self.direct_access or self.long_term):
            raise UserError(
                "cogmem: notes and insights reach the model through the focus of attention; with focus_of_attention off "
                "also switch off direct_access and long_term"
            )

    @property
    def changing_answers(self) -> dict[str, Any]:
        """The settings that may change an answer in the harness; no place and no address on this machine."""
        values = {name: value for name, value in asdict(self).items() if name not in _PLACES}
        for name in ("memory_agent", "reasoning_agent"):
            del values[name]
            if self.extractor == "llm":
                values[name] = getattr(self, name).described
        return values
