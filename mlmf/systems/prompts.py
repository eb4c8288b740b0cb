"""The prompts of the text systems: remembered lines, if there are any, then the question.

A base model is told what to do. A checkpoint's language model was trained on the bare question, so it is asked that way,
with or without lines before it: an instruction it never saw makes it abstain.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.abstention import ABSTENTION
from mlmf.types import Query, answer_prompt, format_date

_HEADER = "Lines from earlier conversations, oldest first:\n"
_INSTRUCTION = f'Answer in a few words. If the conversation does not say, answer "{ABSTENTION}".\n'


def context_prompt(lines: Sequence[str], *, instruct: bool = True) -> str:
    """The part that every question about the same lines shares; empty without lines.

    Args:
        lines: dated lines as :func:`mlmf.types.format_line` writes them, in chronological order.
        instruct: say what the lines are.
    """
    if not lines:
        return ""
    if not instruct:
        return "".join(f"{line}\n" for line in lines)
    return _HEADER + "".join(f"{line}\n" for line in lines) + "\n"


def question_prompt(query: Query, *, instruct: bool = True) -> str:
    """The part that follows the lines; the model continues it with its answer."""
    if not instruct:
        return answer_prompt(query)
    date = f"Date of the question: {format_date(query.date)}\n" if query.date else ""
    return f"{_INSTRUCTION}{date}Question: {query.text}\nAnswer:"
