"""The two agents of CogMem: one keeps the memories, the other says what it needs to see. Here as a model plays them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from mlmf.llm.chat import ChatModel, Message
from mlmf.llm.structured import StructuredOutputError, T, ask_for
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

    def __init__(self, model: ChatModel, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens
        self.failures = 0
        """How many replies were no valid JSON, not even when repaired."""

    def ask(self, prompt: str, schema: type[T]) -> T | None:
        messages = [Message("system", prompts.MEMORY_AGENT), Message("user", prompt)]
        try:
            return ask_for(self.model, messages, schema, self.max_new_tokens)
        except StructuredOutputError as error:
            self.failures += 1
            logger.warning("cogmem: the rules take over for one reply (failure %d): %s", self.failures, error)
            return None


class ModelMemoryAgent(_Asking, MemoryAgent):
    """A chat model as memory agent."""

    def __init__(self, model: ChatModel, rules: MemoryAgent, *, max_new_tokens: int) -> None:
        """Let a model keep the memories.

        Args:
            model: the model.
            rules: does what the model fails to.
            max_new_tokens: the longest reply.
        """
        super().__init__(model, max_new_tokens)
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
            if text
        ]
        return NoteUpdate(notes=tuple(written), summary=" ".join(reply.summary.split()))

    def describe(self, asked: str) -> str:
        """The description that the model writes; its reply is text, not JSON."""
        messages = [Message("system", prompts.MEMORY_AGENT), Message("user", prompts.describe(asked))]
        return self.model.chat([messages], self.max_new_tokens)[0].text or self._rules.describe(asked)

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
                if insight.text.strip():
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
        room = self.model.context_window - self.max_new_tokens - self.model.count_tokens(prompts.review([]))
        parts: list[list[TurnRecord]] = []
        left = 0
        for turn in turns:
            # half of the room: what is repaired is read again beside the reply that failed
            cost = self.model.count_tokens(prompts.labelled(turn))
            if not parts or cost > left:
                parts.append([])
                left = room // 2
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
        super().__init__(model, max_new_tokens)
        self._rules = rules

    def missing(self, window: str, asked: str, turns: Sequence[TurnRecord]) -> list[str]:
        """The turns that the model asks for and that there are."""
        reply = self.ask(prompts.focus(window, asked), _FocusReply)
        if reply is None:
            return self._rules.missing(window, asked, turns)
        labels = {turn.label for turn in turns}
        return [] if reply.enough else [label for label in dict.fromkeys(reply.missing) if label in labels]
