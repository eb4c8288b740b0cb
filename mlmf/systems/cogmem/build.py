"""From settings to CogMem: its stores, its agents, and who plays them."""

from __future__ import annotations

from collections.abc import Callable

from mlmf.config.cogmem import CogMemSettings
from mlmf.llm.chat import ChatModel
from mlmf.retrieval.encoder import Encoder
from mlmf.retrieval.vector_store import open_vector_store
from mlmf.systems.cogmem.agents import FocusAgent, MemoryAgent, ModelFocusAgent, ModelMemoryAgent
from mlmf.systems.cogmem.direct_access import DirectAccess
from mlmf.systems.cogmem.extract import Ranker, RuleFocusAgent, RuleMemoryAgent
from mlmf.systems.cogmem.focus import FocusOfAttention, Shares, bm25_rank
from mlmf.systems.cogmem.long_term import LongTermMemory
from mlmf.systems.cogmem.memory import CogMem
from mlmf.systems.cogmem.sessions import SessionManager
from mlmf.systems.cogmem.stores import open_session_store

_COLLECTION = "cogmem_insights"


def build_cogmem(
    settings: CogMemSettings,
    *,
    count_tokens: Callable[[str], int],
    new_encoder: Callable[[], Encoder],
    load_agent: Callable[[str], ChatModel],
    rank: Ranker = bm25_rank,
) -> CogMem:
    """Build what the settings ask for; nothing is loaded that they do not.

    Args:
        settings: of CogMem.
        count_tokens: as the model that answers counts them.
        new_encoder: makes the encoder of long-term memory.
        load_agent: loads the model of ``memory_agent`` or ``reasoning_agent``.
        rank: which turns match an input.

    Raises:
        UserError: a store cannot be opened, or a model cannot be loaded.
    """
    store = open_session_store(settings.sessions)
    sessions = SessionManager(store, lifetime=settings.session_hours * 3600)
    if not settings.focus_of_attention:
        return CogMem(sessions, None, None, None, insights=settings.insights)
    memory_agent: MemoryAgent = RuleMemoryAgent(notes=settings.notes, merge_similarity=settings.merge_similarity)
    focus_agent: FocusAgent = RuleFocusAgent(rank, turns=settings.missing_turns)
    if settings.extractor == "llm":
        tokens = settings.agent_tokens
        memory_agent = ModelMemoryAgent(load_agent("memory_agent"), memory_agent, max_new_tokens=tokens)
        focus_agent = ModelFocusAgent(load_agent("reasoning_agent"), focus_agent, max_new_tokens=tokens)
    long_term = None
    if settings.long_term:
        encoder = new_encoder()
        width = encoder.encode_queries(["width"]).shape[1]
        vectors = open_vector_store(settings.vectors, _COLLECTION, width)
        long_term = LongTermMemory(store, vectors, encoder, memory_agent)
    return CogMem(
        sessions,
        DirectAccess(sessions, memory_agent, keeps_notes=settings.direct_access),
        long_term,
        FocusOfAttention(
            focus_agent,
            count_tokens,
            rank,
            budget=settings.focus_tokens,
            shares=Shares(
                insights=settings.insight_share if settings.long_term else 0.0,
                notes=settings.notes_share if settings.direct_access else 0.0,
                history=settings.history_share,
            ),
        ),
        insights=settings.insights,
    )
