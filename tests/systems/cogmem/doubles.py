"""Chat models that say what a test tells them to, and an agent that can be held up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pydantic import BaseModel

from mlmf.config.cogmem import CogMemSettings
from mlmf.llm.chat import ChatModel, Message, Reply
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.extract import RuleMemoryAgent
from mlmf.systems.cogmem.memory import CogMem
from mlmf.systems.cogmem.records import Notes, NoteUpdate, TurnRecord
from tests.systems.doubles import WordEncoder

WORDS = ("cat", "dog", "violin", "garden", "rain", "code")


def count_words(text: str) -> int:
    return len(text.split())


class ScriptedModel(ChatModel):
    """Replies by a function of the last message, counts words as tokens and records what it reads."""

    name = "scripted"

    def __init__(self, reply: Callable[[str], str] = lambda said: "Noted.", window: int = 4_000) -> None:
        self.reply, self.window = reply, window
        self.read: list[list[Message]] = []

    @property
    def context_window(self) -> int:
        return self.window

    def count_tokens(self, text: str) -> int:
        return count_words(text)

    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        self.read += [list(conversation) for conversation in conversations]
        texts = [self.reply(conversation[-1].content) for conversation in conversations]
        costs = [sum(count_words(message.content) for message in conversation) for conversation in conversations]
        return [Reply(text, cost, count_words(text)) for text, cost in zip(texts, costs, strict=True)]

    @property
    def last(self) -> str:
        """All that was read for the latest reply."""
        return "\n".join(message.content for message in self.read[-1])


class HeldUp(RuleMemoryAgent):
    """Writes notes by rules, as soon as it is let go; fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__(notes=24, merge_similarity=0.9)
        self.go = threading.Event()
        self.to_fail = 0

    def update(self, notes: Notes, turn: TurnRecord) -> NoteUpdate:
        assert self.go.wait(20)
        if self.to_fail:
            self.to_fail -= 1
            raise OSError("no server answers")
        return super().update(notes, turn)


def cogmem(agent: ChatModel | None = None, **settings: object) -> CogMem:
    return build_cogmem(
        CogMemSettings(**settings),  # type: ignore[arg-type]
        count_tokens=count_words,
        new_encoder=lambda: WordEncoder(*WORDS),
        load_agent=lambda name: agent or ScriptedModel(),
    )
