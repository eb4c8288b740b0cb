"""The one prompt of the text systems: remembered lines, if there are any, then the question."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.abstention import ABSTENTION
from mlmf.types import Query, format_date

_HEADER = "Lines from earlier conversations, oldest first:\n"
_INSTRUCTION = f'Answer in a few words. If the conversation does not say, answer "{ABSTENTION}".\n'


def context_prompt(lines: Sequence[str]) -> str:
    """The part that every question about the same lines shares; empty without lines.

    Args:
        lines: dated lines as :func:`mlmf.types.format_line` writes them, in chronological order.
    """
    if not lines:
        return ""
    return _HEADER + "".join(f"{line}\n" for line in lines) + "\n"


def question_prompt(query: Query) -> str:
    """The part that follows the lines; the model continues it with its answer."""
    date = f"Date of the question: {format_date(query.date)}\n" if query.date else ""
    return f"{_INSTRUCTION}{date}Question: {query.text}\nAnswer:"
