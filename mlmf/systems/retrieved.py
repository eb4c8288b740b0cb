"""The systems that search: each turn is a text in an index, and the best that fit the budget are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlmf.retrieval.base import Index
from mlmf.retrieval.neighbours import with_neighbours
from mlmf.systems.text import Answering, Line, TextSystem, searchable
from mlmf.types import Query, Session


class RetrievedTurns(TextSystem):
    """Shows the turns that an index ranks best for the question."""

    def __init__(
        self, name: str, answering: Answering, new_index: Callable[[], Index], *, turns: int, neighbours: int = 0
    ) -> None:
        """Start with no conversation.

        Args:
            name: of the system.
            answering: the answer model and the budget.
            new_index: makes an empty index; each conversation gets its own.
            turns: the most turns that are shown for what they say.
            neighbours: turns on either side of each of them that are shown too, where the budget allows.
        """
        super().__init__(answering)
        self.name = name
        self.turns, self.neighbours = turns, neighbours
        self._new_index = new_index
        self._index = new_index()

    def reset(self) -> None:
        """Forget every line and begin a new index."""
        super().reset()
        self._index = self._new_index()

    def observe(self, session: Session) -> None:
        """Keep the turns as lines and index them."""
        super().observe(session)
        self._index.add([searchable(turn) for turn in session.turns])

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """The best turns for each query that fit."""
        found = self._index.search([query.text for query in queries], self.turns)
        sessions = [line.session for line in self.lines]
        wanted = [with_neighbours([hit.position for hit in hits], sessions, self.neighbours) for hits in found]
        return [self.fitting([self.lines[position] for position in positions], room) for positions in wanted]
