"""A chat model whose words a test chooses: for what surrounds a model, never for a model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from mlmf.llm.chat import ChatModel, Message, Reply


class SpokenFor(ChatModel):
    """Replies by a function of the last message, and keeps every conversation it was asked."""

    def __init__(self, say: Callable[[str], str], name: str = "spoken-for") -> None:
        self.name = name
        self.say = say
        self.asked: list[list[Message]] = []
        self.batches = 0

    @property
    def context_window(self) -> int:
        return 1000

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        self.batches += 1
        self.asked += [list(one) for one in conversations]
        texts = [self.say(one[-1].content) for one in conversations]
        return [Reply(text, 3, self.count_tokens(text)) for text in texts]
