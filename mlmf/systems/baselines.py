"""Systems to measure a memory against: nothing, the last lines, everything that fits. One answer model for all."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mlmf.abstention import is_abstention
from mlmf.llm.base import LanguageModel
from mlmf.systems.base import MemorySystem
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.types import Answer, Query, Session, format_line

logger = logging.getLogger(__name__)

# room for the question beside the lines; fixed, so that which lines fit does not depend on the batch
_QUESTION_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Line:
    """A remembered turn as text, with what it costs to read."""

    turn_id: str
    text: str
    tokens: int


class PromptSystem(MemorySystem):
    """Keeps the conversation as dated lines and shows some of them to the answer model."""

    def __init__(self, language_model: LanguageModel, *, max_new_tokens: int, instruct: bool = True) -> None:
        """Start with no conversation.

        Args:
            language_model: answers the prompts.
            max_new_tokens: the longest answer, in tokens.
            instruct: tell the model what to do; see :mod:`mlmf.systems.prompts`.
        """
        self.language_model = language_model
        self.instruct = instruct
        self.max_new_tokens = max_new_tokens
        self._lines: list[Line] = []

    def reset(self) -> None:
        """Forget every line."""
        self._lines = []

    def observe(self, session: Session) -> None:
        """Keep the turns of the session as dated lines."""
        for turn in session.turns:
            text = format_line(turn, session.date)
            self._lines.append(Line(turn.id, text, self.language_model.count_tokens(f"{text}\n")))

    @abstractmethod
    def recall(self, room: int) -> list[Line]:
        """The lines to show, in chronological order.

        Args:
            room: how many tokens of lines fit into the model's window beside question and answer.
        """

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer each query from the recalled lines; they are the same for all, so the model reads them once."""
        started = time.perf_counter()
        suffixes = [question_prompt(query, instruct=self.instruct) for query in queries]
        longest = max((self.language_model.count_tokens(suffix) for suffix in suffixes), default=0)
        reserve = (
            max(_QUESTION_TOKENS, longest)
            + self.max_new_tokens
            + self.language_model.count_tokens(context_prompt([""], instruct=self.instruct))
        )
        lines = self.recall(max(0, self.language_model.context_window - reserve))
        prefix = context_prompt([line.text for line in lines], instruct=self.instruct)
        completions = self.language_model.complete_with_prefix(prefix, suffixes, self.max_new_tokens)
        seconds = (time.perf_counter() - started) / max(1, len(queries))
        newest_first = lines[::-1]
        return [
            Answer(
                text=completion.text,
                abstained=is_abstention(completion.text),
                recalled=tuple(line.turn_id for line in newest_first),
                tokens_read=completion.prompt_tokens,
                tokens_written=completion.new_tokens,
                seconds=seconds,
                recalled_lines=tuple(line.text for line in newest_first),
            )
            for completion in completions
        ]


class NoMemory(PromptSystem):
    """The answer model alone: what it knows or guesses without having seen the conversation."""

    name = "no_memory"

    def observe(self, session: Session) -> None:
        """Ignore the session."""

    def recall(self, room: int) -> list[Line]:
        """Nothing."""
        return []


class RecentWindow(PromptSystem):
    """The last turns within a token budget."""

    name = "recent_window"

    def __init__(
        self, language_model: LanguageModel, *, max_new_tokens: int, budget: int, instruct: bool = True
    ) -> None:
        """As the other text systems, and ``budget``: the most tokens of dated lines that are shown."""
        super().__init__(language_model, max_new_tokens=max_new_tokens, instruct=instruct)
        self.budget = budget

    def recall(self, room: int) -> list[Line]:
        """The latest lines within the budget."""
        return latest_lines(self._lines, min(self.budget, room))


class FullContext(PromptSystem):
    """The whole conversation; what exceeds the model's window is left out from the oldest side, and that is logged."""

    name = "full_context"
    _told = False

    def recall(self, room: int) -> list[Line]:
        """Every line that fits, the latest first."""
        lines = latest_lines(self._lines, room)
        left_out = len(self._lines) - len(lines)
        if left_out and not self._told:
            self._told = True
            logger.warning(
                "full_context: the model's window of %d tokens does not hold every conversation; of the first such "
                "one the oldest %d of %d turns are left out",
                self.language_model.context_window,
                left_out,
                len(self._lines),
            )
        return lines


def latest_lines(lines: Sequence[Line], budget: int) -> list[Line]:
    """The longest run of lines up to the last one whose tokens fit into ``budget``, in chronological order."""
    start = len(lines)
    while start and lines[start - 1].tokens <= budget:
        start -= 1
        budget -= lines[start].tokens
    return list(lines[start:])
