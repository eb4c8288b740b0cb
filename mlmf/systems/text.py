"""What the text systems share: dated lines of the conversation, one prompt, one answer model, one way of decoding."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mlmf.abstention import is_abstention
from mlmf.llm.base import LanguageModel
from mlmf.retrieval.budget import within_budget
from mlmf.systems.base import MemorySystem
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.types import Answer, Query, Session, Turn, format_line

# room for the question beside the lines; fixed, so that which lines fit does not depend on the batch
_QUESTION_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Answering:
    """How text systems answer: the same for all of a run."""

    language_model: LanguageModel
    max_new_tokens: int
    """The longest answer."""
    budget: int
    """The most tokens of dated lines in a prompt; full_context alone goes beyond."""
    instruct: bool = True
    """Tell the model what to do; see :mod:`mlmf.systems.prompts`."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something remembered as text, with where it comes from and what it costs to read."""

    position: int
    """Number of its turn within what was observed."""
    session: int
    """Number of the session of that turn."""
    turn_ids: tuple[str, ...]
    """The turns it says something of."""
    text: str
    tokens: int


class LineKeeper:
    """Keeps a conversation as dated lines, and answers from those it is told to show."""

    def __init__(self, answering: Answering) -> None:
        """Start with no conversation."""
        self.answering = answering
        self.lines: list[Line] = []

    def reset(self) -> None:
        """Forget every line."""
        self.lines = []

    def observe(self, session: Session) -> None:
        """Keep the turns of the session as dated lines."""
        for turn in session.turns:
            text = format_line(turn, session.date)
            self.lines.append(Line(len(self.lines), session.index, (turn.id,), text, self.cost(text)))

    def cost(self, text: str) -> int:
        """Tokens of a line in a prompt, its end among them."""
        return self.answering.language_model.count_tokens(f"{text}\n")

    def room(self, queries: Sequence[Query]) -> int:
        """How many tokens of lines fit into the model's window beside question and answer."""
        model, instruct = self.answering.language_model, self.answering.instruct
        suffixes = [question_prompt(query, instruct=instruct) for query in queries]
        longest = max((model.count_tokens(suffix) for suffix in suffixes), default=0)
        header = model.count_tokens(context_prompt([""], instruct=instruct))
        reserve = max(_QUESTION_TOKENS, longest) + self.answering.max_new_tokens + header
        return max(0, model.context_window - reserve)

    def respond(
        self, queries: Sequence[Query], shown: Sequence[Sequence[Line]], *, turns_left_out: int = 0
    ) -> list[Answer]:
        """Let the model answer each query from its lines.

        Args:
            queries: independent queries.
            shown: the lines for each query, best first; the prompt has them in the order of time.
            turns_left_out: see :class:`~mlmf.types.Answer`.
        """
        started = time.perf_counter()
        model, instruct = self.answering.language_model, self.answering.instruct
        suffixes = [question_prompt(query, instruct=instruct) for query in queries]
        prefixes = [
            context_prompt([line.text for line in sorted(lines, key=_position)], instruct=instruct) for lines in shown
        ]
        if len(set(prefixes)) == 1:
            completions = model.complete_with_prefix(prefixes[0], suffixes, self.answering.max_new_tokens)
        else:
            prompts = [prefix + suffix for prefix, suffix in zip(prefixes, suffixes, strict=True)]
            completions = model.complete(prompts, self.answering.max_new_tokens)
        seconds = (time.perf_counter() - started) / max(1, len(queries))
        return [
            Answer(
                text=completion.text,
                abstained=is_abstention(completion.text),
                recalled=tuple(dict.fromkeys(turn_id for line in lines for turn_id in line.turn_ids)),
                tokens_read=completion.prompt_tokens,
                tokens_written=completion.new_tokens,
                seconds=seconds,
                seconds_decoding=completion.seconds_decoding,
                recalled_lines=tuple(line.text for line in lines),
                turns_left_out=turns_left_out,
            )
            for completion, lines in zip(completions, shown, strict=True)
        ]

    def fitting(self, lines: Sequence[Line], room: int) -> list[Line]:
        """Of lines given best first, those that fit into the budget and into ``room`` tokens."""
        budget = min(self.answering.budget, room)
        return [lines[position] for position in within_budget((line.tokens for line in lines), budget)]


class TextSystem(LineKeeper, MemorySystem):
    """A memory system that chooses lines for each query."""

    @abstractmethod
    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """The lines to show for each query, best first.

        Args:
            queries: independent queries.
            room: how many tokens of lines fit into the model's window.
        """

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer each query from the lines recalled for it."""
        return self.respond(queries, self.recall(queries, self.room(queries)))


def searchable(turn: Turn) -> str:
    """``Caroline: ...``: a turn as the retrievers read it."""
    return f"{turn.speaker}: {turn.content}"


def _position(line: Line) -> int:
    return line.position
