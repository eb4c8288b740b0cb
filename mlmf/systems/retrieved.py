"""The systems that search: each turn is a text in an index, and the best that fit the budget are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlmf.retrieval.base import Index
from mlmf.systems.text import Answering, Line, TextSystem, searchable
from mlmf.types import Query, Session


class RetrievedTurns(TextSystem):
    """Shows the turns that an index ranks best for the question."""

    def __init__(self, name: str, answering: Answering, new_index: Callable[[], Index], *, turns: int) -> None:
        """Start with no conversation.

        Args:
            name: of the system.
            answering: the answer model and the budget.
            new_index: makes an empty index; each conversation gets its own.
            turns: the most turns that are shown.
        """
        super().__init__(answering)
        self.name = name
        self.turns = turns
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
        return [self.fitting([self.lines[hit.position] for hit in hits], room) for hits in found]
