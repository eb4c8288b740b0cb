"""What a question says about where its answer stands: who said it, and in which month or year."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from mlmf.memory.layout import Layout
from mlmf.memory.speakers import named_speakers
from mlmf.types import MONTHS

_MONTH = re.compile(rf"\b(?:{'|'.join(MONTHS)})\b")  # capitalised: "may" is mostly a verb
_PAST = re.compile(
    r"\b(?:before|earlier|first|formerly|former|originally|original|previously|previous|used to|no longer|in the past|back then)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def by_whom(texts: Sequence[str], layout: Layout) -> Tensor:
    """1 for the turns of the speakers whom the query names, ``(B, N)``; see :func:`~mlmf.memory.speakers.named_speakers`.

    A query that names every speaker says nothing about who it was: 0 everywhere.
    """
    rows = []
    for row, text in enumerate(texts):
        speakers = layout.speakers[row if len(layout.speakers) > 1 else 0]
        named = named_speakers(text, speakers)
        rows.append([False] * len(speakers) if all(named) else named)
    most = max(map(len, rows), default=0)
    told = torch.tensor([[*row, *[False] * (most - len(row) + 1)] for row in rows], device=layout.speaker.device)
    # a place without a speaker reads the last entry, which is never named
    return told.float().gather(1, (layout.speaker % (most + 1)).expand(len(texts), -1))


def whose(texts: Sequence[str], layout: Layout) -> Tensor:
    """Whose words each node is, as seen from the query, ``(B, N)``.

    1 for the turns of speakers whom the query names, 2 for the turns of everybody else where it names somebody, and 0
    for date lines, empty places and queries of which :func:`by_whom` knows nothing.
    """
    own = by_whom(texts, layout) > 0
    others = own.any(-1, keepdim=True) & ~own & (layout.speaker >= 0)
    return own + 2 * others


def when(texts: Sequence[str], layout: Layout) -> Tensor:
    """1 for the nodes of the months and years that the query names, ``(B, N)``; 0 everywhere where it names none.

    A speaker called April or June is no month.
    """
    rows = []
    for row, text in enumerate(texts):
        month = layout.month[row if layout.month.shape[0] > 1 else 0]
        speakers = layout.speakers[row if len(layout.speakers) > 1 else 0]
        months = [MONTHS.index(name) for name in _MONTH.findall(text) if name not in speakers]
        years = [int(year) for year in _YEAR.findall(text)]
        fits = month >= 0 if months or years else torch.zeros_like(month, dtype=torch.bool)
        for value, wanted in ((month % 12, months), (month // 12, years)):
            if wanted:
                fits = fits & torch.isin(value, torch.tensor(wanted, device=value.device))
        rows.append(fits)
    return torch.stack(rows).float()


def asks_about_past(text: str) -> bool:
    """Whether a question wants what once was so, and no longer need be.

    >>> asks_about_past("Where did I live before Lisbon?"), asks_about_past("Where do I live?")
    (True, False)
    """
    return _PAST.search(text) is not None
