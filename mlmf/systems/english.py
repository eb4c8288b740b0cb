"""What the rules of CogMem and Cognis, which need no language model, both know of English: sentences, questions, times."""

from __future__ import annotations

import re

from mlmf.retrieval.dates import DAYS
from mlmf.types import MONTHS

# a capital or a digit must follow: "my Ph.D. research" goes on
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9])|\n+")
_CAPTION = re.compile(r"\s+(?=\[shares a picture: )")
_TIME = re.compile(
    r"\b(?:yesterday|today|tomorrow|last|next|ago|since|week(?:end)?|month|year|"
    # without May, which is a verb more often
    rf"{'|'.join([*DAYS, *(month for month in MONTHS if month != 'May')])})\b",
    re.IGNORECASE,
)


def split_sentences(text: str, *, captions_apart: bool = False) -> list[str]:
    """The sentences of a text.

    Args:
        text: what was said in a turn.
        captions_apart: what a shared picture shows is a sentence of its own, not the end of the one before it.

    >>> split_sentences("We met in 2.5 hours. She's 40! So what")
    ['We met in 2.5 hours.', "She's 40!", 'So what']
    >>> split_sentences("Look at this [shares a picture: a dog]", captions_apart=True)
    ['Look at this', '[shares a picture: a dog]']
    """
    parts = _SENTENCE_END.split(text)
    if captions_apart:
        parts = [piece for part in parts for piece in _CAPTION.split(part)]
    return [part.strip() for part in parts if part.strip()]


def is_question(sentence: str) -> bool:
    """Whether a sentence asks, and so states nothing."""
    return sentence.rstrip().endswith("?")


def names_a_time(text: str) -> bool:
    """Whether a text says when something was or will be, with a date or without."""
    return _TIME.search(text) is not None
