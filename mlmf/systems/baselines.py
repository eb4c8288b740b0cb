"""Systems to measure a memory against that search nothing: no memory, the last lines, everything that fits."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mlmf.systems.text import Line, TextSystem
from mlmf.types import Answer, Query, Session

logger = logging.getLogger(__name__)


class NoMemory(TextSystem):
    """The answer model alone: what it knows or guesses without having seen the conversation."""

    name = "no_memory"

    def observe(self, session: Session) -> None:
        """Ignore the session."""

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """Nothing."""
        return [[] for _ in queries]


class RecentWindow(TextSystem):
    """The last turns within the token budget."""

    name = "recent_window"

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """The latest lines within the budget, the same for every query."""
        return [latest_lines(self.lines, min(self.answering.budget, room))] * len(queries)


class FullContext(TextSystem):
    """The whole conversation; what exceeds the model's window is left out from the oldest side.

    Each answer says how many turns that were, and the first time it is logged.
    """

    name = "full_context"
    _told = False

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """Every line that fits, the same for every query."""
        return [latest_lines(self.lines, room)] * len(queries)

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer each query from all lines that fit; the model reads them once."""
        shown = self.recall(queries, self.room(queries))
        left_out = len(self.lines) - len(shown[0]) if shown else 0
        if left_out and not self._told:
            self._told = True
            logger.warning(
                "full_context: the model's window of %d tokens does not hold every conversation; of the first such "
                "one the oldest %d of %d turns are left out",
                self.answering.language_model.context_window,
                left_out,
                len(self.lines),
            )
        return self.respond(queries, shown, turns_left_out=left_out)


def latest_lines(lines: Sequence[Line], budget: int) -> list[Line]:
    """The longest run of lines up to the last one whose tokens fit into ``budget``, newest first."""
    start = len(lines)
    while start and lines[start - 1].tokens <= budget:
        start -= 1
        budget -= lines[start].tokens
    return list(lines[start:])[::-1]
