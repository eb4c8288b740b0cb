"""From settings to CogMem: its stores, its agents, and who plays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mlmf.config.cogmem import CogMemSettings
from mlmf.config.llm import ChatSettings
from mlmf.llm.chat import ChatModel
from mlmf.llm.load import load_chat_model
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
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


class Agents:
    """The models of the two agents, each loaded when it is first asked for; the same settings are one model."""

    def __init__(self, settings: CogMemSettings, *, base_model: str | None, device: str | None) -> None:
        """Load nothing yet.

        Args:
            settings: name the models.
            base_model: the local model of an agent whose settings name none.
            device: of local models.
        """
        self._settings, self._base_model, self._device = settings, base_model, device
        self._loaded: list[tuple[ChatSettings, ChatModel]] = []

    def __call__(self, agent: Literal["memory_agent", "reasoning_agent"]) -> ChatModel:
        """The model of an agent.

        Raises:
            UserError: it cannot be loaded.
        """
        settings: ChatSettings = getattr(self._settings, agent)
        for known, model in self._loaded:
            if known == settings:
                return model
        model = load_chat_model(settings, default_model=self._base_model, device=self._device)
        self._loaded.append((settings, model))
        return model


def open_cogmem(
    settings: CogMemSettings,
    *,
    base_model: str = "smollm2-135m",
    encoder: str = "all-minilm-l6-v2",
    device: str | None = None,
) -> tuple[CogMem, ChatModel]:
    """CogMem to talk to, and the reasoning agent that talks.

    Args:
        settings: of CogMem.
        base_model: the local model of an agent whose settings name none.
        encoder: sentence encoder of long-term memory: known name, local path or Hugging Face id.
        device: of local models; by default CUDA where there is one.

    Raises:
        UserError: a store cannot be opened, or a model cannot be loaded.
    """
    agents = Agents(settings, base_model=base_model, device=device)
    model = agents("reasoning_agent")
    memory = build_cogmem(
        settings,
        count_tokens=model.count_tokens,
        new_encoder=lambda: SentenceEncoder(encoder, device=device),
        load_agent=agents,
    )
    return memory, model


def build_cogmem(
    settings: CogMemSettings,
    *,
    count_tokens: Callable[[str], int],
    new_encoder: Callable[[], Encoder],
    load_agent: Callable[[Literal["memory_agent", "reasoning_agent"]], ChatModel],
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
