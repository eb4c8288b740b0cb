"""Controls that bound the scores: refuse everything, always say the same, be told where the answer is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mlmf.abstention import ABSTENTION
from mlmf.errors import UserError
from mlmf.systems.base import MemorySystem, PrivilegedControl
from mlmf.systems.text import LineKeeper
from mlmf.types import Answer, Query, Question, Session


class FixedAnswer(MemorySystem):
    """Says the same to every question."""

    def __init__(self, name: str, text: str, *, abstained: bool) -> None:
        """Say ``text``, which is a refusal where ``abstained``."""
        self.name = name
        self._answer = Answer(text, abstained=abstained)

    def reset(self) -> None:
        """Nothing is kept."""

    def observe(self, session: Session) -> None:
        """Ignore the session."""

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """The same answer each time."""
        return [self._answer for _ in queries]


def always_abstain() -> FixedAnswer:
    """Refuses every question: right on every trap, wrong on all else."""
    return FixedAnswer("always_abstain", ABSTENTION, abstained=True)


def most_frequent(questions: Iterable[Question]) -> FixedAnswer:
    """Says the answer that is most frequent among training questions; equally frequent ones in alphabetical order.

    Raises:
        UserError: none of the questions has an answer.
    """
    counts = Counter(question.answer for question in questions if question.answer is not None)
    if not counts:
        raise UserError("most_frequent: the training questions have no answers; give another --training_file")
    return FixedAnswer("most_frequent", min(counts, key=lambda text: (-counts[text], text)), abstained=False)


class OracleEvidence(LineKeeper, PrivilegedControl):
    """Shows the turns that hold the answer: what the answer model makes of perfect finding, within the same budget."""

    name = "oracle_evidence"

    def answer_with_gold_evidence(self, queries: Sequence[Query], evidence: Sequence[Sequence[str]]) -> list[Answer]:
        """Answer each query from its evidence turns that fit, in the order of time."""
        room = self.room(queries)
        shown = [
            self.fitting([line for line in self.lines if set(line.turn_ids) & set(ids)], room) for ids in evidence
        ]
        return self.respond(queries, shown)
