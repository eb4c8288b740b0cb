"""The two agents of CogMem: one keeps the memories, the other says what it needs to see. Here as a model plays them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from mlmf.llm.chat import ChatModel, Message
from mlmf.llm.structured import StructuredOutputError, T, ask_for, says_something
from mlmf.systems.cogmem import prompts
from mlmf.systems.cogmem.records import Insight, Note, NoteKind, Notes, NoteUpdate, TurnRecord, Verdict

logger = logging.getLogger(__name__)


class MemoryAgent(ABC):
    """Writes the notes of a session and decides what long-term memory keeps of it. Safe to use from several threads."""

    @abstractmethod
    def update(self, notes: Notes, turn: TurnRecord) -> NoteUpdate:
        """The notes after a turn, and the turn in one line."""

    @abstractmethod
    def describe(self, asked: str) -> str:
        """What long-term memory is searched with: the opening of a session, rewritten as a description of it."""

    @abstractmethod
    def distil(self, turns: Sequence[TurnRecord]) -> list[tuple[str, tuple[str, ...]]]:
        """What is worth keeping of a session, each with the labels of the turns it comes from."""

    @abstractmethod
    def judge(self, text: str, similar: Sequence[tuple[Insight, float]]) -> Verdict:
        """Whether an insight is added, takes the place of a stored one, or is left out.

        Args:
            text: the insight.
            similar: stored insights that are near it, nearest first, with their cosines.
        """


class FocusAgent(ABC):
    """Says whether a window is enough to answer from."""

    @abstractmethod
    def missing(self, window: str, asked: str, turns: Sequence[TurnRecord]) -> list[str]:
        """Labels of the turns to add to the window, the most wanted first; none if it is enough.

        Args:
            window: the first window.
            asked: the new input.
            turns: the dialogue so far.
        """


class _NotesReply(BaseModel):
    conclusions: list[str] = Field(default_factory=list)
    goals: list[str] = Field(default_factory=list)
    plans: list[str] = Field(default_factory=list)
    summary: str


class _FoundInsight(BaseModel):
    text: str
    turns: list[str] = Field(default_factory=list)


class _ReviewReply(BaseModel):
    insights: list[_FoundInsight] = Field(default_factory=list)


class _VerdictReply(BaseModel):
    action: Literal["add", "merge", "exclude"]
    number: int | None = None
    text: str = ""


class _FocusReply(BaseModel):
    enough: bool
    missing: list[str] = Field(default_factory=list)


class _Asking:
    """Asks a model for JSON; what it cannot give the rules do, and the failure is counted."""

    def __init__(self, model: ChatModel, instructions: str, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens
        self._instructions = instructions
        self.failures = 0
        """Prompts that were too long for the model, and replies that were no valid JSON, not even when repaired."""

    @property
    def room(self) -> int:
        """The most tokens of a prompt: beside it stand a reply, why it was refused, and its repair."""
        return self.model.context_window - 3 * self.max_new_tokens - self.model.count_tokens(self._instructions)

    def ask(self, prompt: str, schema: type[T]) -> T | None:
        if not self._fits(prompt):
            return None
        try:
            return ask_for(self.model, self.conversation(prompt), schema, self.max_new_tokens)
        except StructuredOutputError as error:
            self._failed(str(error))
            return None

    def write(self, prompt: str) -> str:
        if not self._fits(prompt):
            return ""
        return self.model.chat([self.conversation(prompt)], self.max_new_tokens)[0].text

    def conversation(self, prompt: str) -> list[Message]:
        return [Message("system", self._instructions), Message("user", prompt)]

    def _fits(self, prompt: str) -> bool:
        tokens = self.model.count_tokens(prompt)
        if tokens > self.room:
            self._failed(f"a prompt of {tokens} tokens, where {self.model.name} has room for {self.room}")
        return tokens <= self.room

    def _failed(self, reason: str) -> None:
        self.failures += 1
        logger.warning("cogmem: the rules take over for one reply (failure %d): %s", self.failures, reason)


class ModelMemoryAgent(_Asking, MemoryAgent):
    """A chat model as memory agent."""

    def __init__(self, model: ChatModel, rules: MemoryAgent, *, max_new_tokens: int) -> None:
        """Let a model keep the memories.

        Args:
            model: the model.
            rules: does what the model fails to.
            max_new_tokens: the longest reply.
        """
        super().__init__(model, prompts.MEMORY_AGENT, max_new_tokens)
        self._rules = rules

    def update(self, notes: Notes, turn: TurnRecord) -> NoteUpdate:
        """The notes as the model rewrites them; a note it kept as it was keeps its turn."""
        reply = self.ask(prompts.update_notes(notes, turn), _NotesReply)
        if reply is None:
            return self._rules.update(notes, turn)
        known = {(note.kind, note.text): note for note in notes}
        kinds: list[tuple[NoteKind, list[str]]] = [
            ("conclusion", reply.conclusions),
            ("goal", reply.goals),
            ("plan", reply.plans),
        ]
        written = [
            known.get((kind, text), Note(kind=kind, text=text, turn=turn.label))
            for kind, texts in kinds
            for text in dict.fromkeys(text.strip() for text in texts)
            if says_something(text)
        ]
        return NoteUpdate(notes=tuple(written), summary=" ".join(reply.summary.split()))

    def describe(self, asked: str) -> str:
        """The description that the model writes; its reply is text, not JSON."""
        return self.write(prompts.describe(asked)) or self._rules.describe(asked)

    def distil(self, turns: Sequence[TurnRecord]) -> list[tuple[str, tuple[str, ...]]]:
        """The insights that the model finds, as many turns at a time as it can read."""
        labels = {turn.label for turn in turns}
        found: list[tuple[str, tuple[str, ...]]] = []
        for part in self._readable(turns):
            reply = self.ask(prompts.review(part), _ReviewReply)
            if reply is None:
                found += self._rules.distil(part)
                continue
            for insight in reply.insights:
                if says_something(insight.text):
                    found.append((insight.text.strip(), tuple(t for t in insight.turns if t in labels)))
        return found

    def judge(self, text: str, similar: Sequence[tuple[Insight, float]]) -> Verdict:
        """The model's verdict; with nothing similar there is nothing to ask."""
        if not similar:
            return Verdict(action="add", text=text)
        reply = self.ask(prompts.judge(text, [insight.text for insight, _ in similar]), _VerdictReply)
        if reply is None or (reply.action == "merge" and not 1 <= (reply.number or 0) <= len(similar)):
            return self._rules.judge(text, similar)
        merge_with = similar[(reply.number or 0) - 1][0].id if reply.action == "merge" else None
        return Verdict(action=reply.action, text=reply.text.strip() or text, merge_with=merge_with)

    def _readable(self, turns: Sequence[TurnRecord]) -> list[list[TurnRecord]]:
        room = self.room - self.model.count_tokens(prompts.review([]))
        parts: list[list[TurnRecord]] = []
        left = 0
        for turn in turns:
            cost = self.model.count_tokens(f"{prompts.labelled(turn)}\n")
            if not parts or cost > left:
                parts.append([])
                left = room
            parts[-1].append(turn)
            left -= cost
        return parts


class ModelFocusAgent(_Asking, FocusAgent):
    """A chat model that says whether a window is enough."""

    def __init__(self, model: ChatModel, rules: FocusAgent, *, max_new_tokens: int) -> None:
        """Let the reasoning agent judge.

        Args:
            model: the reasoning agent.
            rules: judges where its reply is not valid.
            max_new_tokens: the longest reply.
        """
        super().__init__(model, prompts.REASONING_AGENT, max_new_tokens)
        self._rules = rules

    def missing(self, window: str, asked: str, turns: Sequence[TurnRecord]) -> list[str]:
        """The turns that the model asks for and that there are."""
        reply = self.ask(prompts.focus(window, asked), _FocusReply)
        if reply is None:
            return self._rules.missing(window, asked, turns)
        labels = {turn.label for turn in turns}
        return [] if reply.enough else [label for label in dict.fromkeys(reply.missing) if label in labels]
