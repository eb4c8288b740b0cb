"""What a question says about where its answer stands: days, names, and whether it wants the latest or the past."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mlmf.memory.cues import asks_about_past
from mlmf.memory.entities import extract_by_rules
from mlmf.retrieval.dates import Span, find_dates
from mlmf.systems.cognis.extract import content_words, without_dates
from mlmf.types import Query

_LATEST = re.compile(
    r"\b(?:now|nowadays|currently|current|at present|present|these days|today|latest|lately|recent|recently|newest|still"
    r"|any ?more|most recent|so far)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """A question, taken apart."""

    words: tuple[str, ...]
    """To search for, lower-cased."""
    spans: tuple[Span, ...] = ()
    """The days it names."""
    entities: tuple[str, ...] = ()
    """Names and things it mentions, speakers among them."""
    wants_latest: bool = False
    wants_past: bool = False
    """It asks what once was so: replaced versions are answers to it."""


def analyse(query: Query, latest: datetime | None, speakers: Sequence[str]) -> Analysis:
    """Take a question apart.

    Args:
        query: the question; its own date is what "yesterday" goes by.
        latest: when the newest message was said, which is the date of a question that has none.
        speakers: who takes part in the conversation.

    >>> analyse(Query("What did Ann paint the week before 9 June 2023?"), None, ["Ann"]).entities
    ('ann',)
    """
    mentions = find_dates(query.text, query.date or latest)
    rest = without_dates(query.text, mentions)  # "before 9 June" asks for no earlier version
    return Analysis(
        words=plain_words(query.text),
        spans=tuple(mention.span for mention in mentions),
        entities=extract_by_rules(rest, tuple(speakers)),
        wants_latest=_LATEST.search(rest) is not None,
        wants_past=asks_about_past(rest),
    )


def plain_words(text: str) -> tuple[str, ...]:
    """What BM25 searches for: the words that say something, each once."""
    return tuple(dict.fromkeys(content_words(text)))
