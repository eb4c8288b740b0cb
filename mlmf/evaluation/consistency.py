"""Is an answer consistent with the gold one? Lexical rules, and beside them a language model or any other judge.

How often the judge itself is right is a property of the judge. :func:`judge_accuracy` measures it on answers that people
labelled, and it is reported apart: it is no figure of any memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from mlmf.data.reading import ExactRecord, NonBlank, Text, checked, json_lines, read_text
from mlmf.errors import UserError
from mlmf.evaluation.robust import contains_answer, f1_robust

Rubric = Literal["reference", "off_by_one", "newest", "preference"]
"""What makes an answer right: it says what the gold one says; also with a number of days, weeks or months off by one; also
beside what was true before; or it does what the gold one describes, as people's preferences are described."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer to be judged."""

    question: str
    gold: str
    answer: str
    rubric: Rubric = "reference"
    """For judges that understand; judges by rules have one for all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge found."""

    is_consistent: bool | None
    """Whether the answer says what the gold one says; ``None`` where the judge gave no verdict."""
    error: str | None = None
    """Why there is none."""


class ConsistencyJudge(Protocol):
    """What a judge is: a name for the report, and verdicts on answers."""

    @property
    def name(self) -> str:
        """What results call it."""

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """One verdict per answer, in the same order."""


@dataclass(frozen=True, slots=True)
class LexicalJudge:
    """Consistent is an answer whose robust F1 reaches ``threshold``, or in which the gold answer stands as it is."""

    threshold: float = 0.5
    name: str = "lexical"

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Judge by the words of the two answers; the question is not read."""
        return [
            Verdict(f1_robust(one.answer, one.gold) >= self.threshold or contains_answer(one.answer, one.gold))
            for one in claims
        ]


class LabelledAnswer(ExactRecord):
    """A line of a labelled sample: an answer, and whether a person found it consistent with the gold one."""

    question: NonBlank
    gold: NonBlank
    answer: Text
    is_consistent: bool


def load_labels(path: str | Path) -> list[LabelledAnswer]:
    """Read a labelled sample, JSON Lines with the fields of :class:`LabelledAnswer`.

    Raises:
        UserError: no such file, an empty one, or a malformed line.
    """
    path = Path(path)
    labels = [checked(LabelledAnswer, value, where) for where, value in json_lines(read_text(path), path.name)]
    if not labels:
        raise UserError(f"{path}: holds no labelled answer")
    return labels


def judge_accuracy(judge: ConsistencyJudge, labels: Sequence[LabelledAnswer]) -> dict[str, Any]:
    """How often a judge agrees with people.

    Returns:
        ``judge``, ``n`` verdicts and ``n_failed`` answers without one, ``accuracy``, and apart ``accuracy_consistent`` and ``accuracy_inconsistent`` with their ``n``:
        a judge that accepts everything is right on all of the first and on none of the second.
    """
    agrees: dict[bool, list[bool]] = {True: [], False: []}
    verdicts = judge.judge([Claim(label.question, label.gold, label.answer) for label in labels])
    for label, verdict in zip(labels, verdicts, strict=True):
        if verdict.is_consistent is not None:
            agrees[label.is_consistent].append(verdict.is_consistent == label.is_consistent)
    every = agrees[True] + agrees[False]
    return {
        "judge": judge.name,
        "n": len(every),
        "n_failed": len(labels) - len(every),
        "accuracy": _share(every),
        "n_consistent": len(agrees[True]),
        "accuracy_consistent": _share(agrees[True]),
        "n_inconsistent": len(agrees[False]),
        "accuracy_inconsistent": _share(agrees[False]),
    }


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
