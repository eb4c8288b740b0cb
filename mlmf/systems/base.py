"""What a memory system is: it observes sessions in time order and answers queries. Nothing else reaches it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mlmf.types import Answer, Query, Session


class MemorySystem(ABC):
    """A memory under test. One conversation at a time: ``reset``, then ``observe`` each session, then ``answer``."""

    name: str

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: the next session belongs to another conversation."""

    @abstractmethod
    def observe(self, session: Session) -> None:
        """Take in one session; sessions come in chronological order."""

    @abstractmethod
    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer a batch of independent queries about what was observed; answering changes no memory."""


class PrivilegedControl(ABC):
    """A control, not a memory: it is told where the answers are, to bound what the answer model could do.

    The harness asks a control through this method and no other, and no memory system has it.
    """

    name: str

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: the next session belongs to another conversation."""

    @abstractmethod
    def observe(self, session: Session) -> None:
        """Take in one session; sessions come in chronological order."""

    @abstractmethod
    def answer_with_gold_evidence(self, queries: Sequence[Query], evidence: Sequence[Sequence[str]]) -> list[Answer]:
        """Answer queries, with the ids of the turns that hold each answer; none where the data names none."""


System = MemorySystem | PrivilegedControl
"""What the harness runs."""
