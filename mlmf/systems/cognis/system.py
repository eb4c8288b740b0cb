"""Cognis under test: one conversation is one user, and what is found is shown to the answer model as dated lines."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from mlmf.retrieval.neighbours import with_neighbours
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.records import Memory
from mlmf.systems.text import Answering, Line, TextSystem
from mlmf.types import Query, Session


class CognisSystem(TextSystem):
    """Shows facts and messages that Cognis finds, within the same budget as every text system."""

    name = "cognis"

    def __init__(self, answering: Answering, memory: CognisMemory, *, turns: int, neighbours: int = 0) -> None:
        """Start with no conversation.

        Args:
            answering: the answer model and the budget.
            memory: where the conversation is kept, beside those of other users.
            turns: the most memories that are shown for what they say.
            neighbours: turns on either side of each of them that are shown too, where the budget allows.
        """
        super().__init__(answering)
        self.turns, self.neighbours = turns, neighbours
        self._memory = memory
        self._user = _new_user()

    def reset(self) -> None:
        """Delete the conversation and begin another."""
        super().reset()
        self._memory.delete_user(self._user)
        self._user = _new_user()

    def observe(self, session: Session) -> None:
        """Record the session and take its facts."""
        super().observe(session)
        self._memory.add(self._user, session)

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """The best memories for each query that fit, then what was said around them."""
        sessions = [line.session for line in self.lines]
        recalled = []
        for found in self._memory.search(self._user, queries, self.turns):
            memories = [one.memory for one in found]
            positions = list(dict.fromkeys(memory.position for memory in memories))
            around = with_neighbours(positions, sessions, self.neighbours)[len(positions) :]
            lines = [self._line(memory) for memory in memories] + [self.lines[position] for position in around]
            recalled.append(self.fitting(lines, room))
        return recalled

    def _line(self, memory: Memory) -> Line:
        if memory.kind == "message":
            return self.lines[memory.position]
        return Line(memory.position, memory.session, memory.turn_ids, memory.line, self.cost(memory.line))


def _new_user() -> str:
    return f"conversation-{uuid.uuid4().hex}"
