"""What the agents of the text systems and the judge need of a language model: to talk to it, in turns with roles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said next, and what that cost."""

    text: str
    """All of it, without surrounding white space."""
    prompt_tokens: int
    """Tokens the model read, those of its chat template included."""
    new_tokens: int
    """Tokens it wrote."""
    cached: bool = False
    """Whether an earlier call paid for it; the counts are then those of that call."""


class ChatError(Exception):
    """There is no reply, although the model is there: it took too long, or the conversation is too long for it."""


class ChatModel(ABC):
    """A model that continues conversations, safe to call from several threads.

    It keeps nothing from one call to the next that could change a reply.
    """

    name: str
    """What results call it, and part of the key of a cached reply."""

    @property
    @abstractmethod
    def context_window(self) -> int:
        """How many tokens a conversation and its reply may have together."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone, without the marks of a chat template."""

    @abstractmethod
    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        """Reply to each conversation, always with the most likely words (greedy, temperature 0).

        Args:
            conversations: independent ones; the replies come in the same order.
            max_new_tokens: the most tokens of a reply.
            schema: what a reply should be JSON of. A model that can write nothing else is held to it; for any other it
                changes nothing, so the messages must ask for it as well. :func:`mlmf.llm.structured.ask_for` validates.

        Raises:
            ChatError: a reply failed; callers count that.
            UserError: the model cannot be reached or used as it is set up.
        """


class DelegatingChatModel(ChatModel):
    """Another model, known by its name, with something done around its replies: subclasses say what in :meth:`chat`."""

    def __init__(self, model: ChatModel) -> None:
        """Stand before ``model``."""
        self.name = model.name
        self._model = model

    @property
    def context_window(self) -> int:
        """That of the model."""
        return self._model.context_window

    def count_tokens(self, text: str) -> int:
        """As the model counts."""
        return self._model.count_tokens(text)
