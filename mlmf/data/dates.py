"""Dates as people and benchmarks write them, read the same under every locale.

``strptime`` is no help here: its ``%B`` and ``%p`` follow the locale of the machine.
"""

from __future__ import annotations

import re
from datetime import datetime

from mlmf.types import MONTHS

ACCEPTED = "'2023/05/08 (Mon) 13:56', '1:56 pm on 8 May, 2023', '2023-05-08', '2023-05-08T13:56', '8 May 2023', 'May 8, 2023' or '08.05.2023, 13:56:00'"

_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?(?:\s*(?P<half>[ap])\.?m\.?)?"
_YEAR = r"(?P<year>\d{4})"
_DAY = r"(?P<day>\d{1,2})"
_NAME = r"(?P<name>[a-z]+)\.?"
_ORDINAL = r"(?:st|nd|rd|th)?"
_DATES = (
    rf"{_DAY}{_ORDINAL}\s+{_NAME},?\s+{_YEAR}",
    rf"{_NAME}\s+{_DAY}{_ORDINAL},?\s+{_YEAR}",
    rf"{_DAY}\.(?P<month>\d{{1,2}})\.{_YEAR}",
)
_ISO = rf"{_YEAR}-(?P<month>\d\d)-(?P<day>\d\d)(?:[T ]{_TIME}(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"
# LongMemEval's; with the year first, day and month cannot be swapped
_SLASHED = rf"{_YEAR}/(?P<month>\d\d)/(?P<day>\d\d)(?:\s+\([a-z]+\))?(?:\s+{_TIME})?"
_FORMS = [
    _ISO,
    _SLASHED,
    *(rf"(?:{_TIME}\s+on\s+)?{date}" for date in _DATES),
    *(rf"{date},?\s+(?:at\s+)?{_TIME}" for date in _DATES),
]
_PATTERNS = [re.compile(form, re.ASCII | re.IGNORECASE) for form in _FORMS]
_MONTH_NUMBERS = {
    spelling.lower(): number for number, month in enumerate(MONTHS, start=1) for spelling in (month, month[:3])
} | {"sept": 9}
_SPELLINGS = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
_MONTH = rf"(?P<name>{_SPELLINGS})\b\.?"
_OPTIONAL_YEAR = rf"(?:,?\s*{_YEAR}\b)?"
_WITHIN = [
    re.compile(form, re.ASCII | re.IGNORECASE)
    for form in (
        rf"\b{_YEAR}[-/](?P<month>\d\d?)[-/](?P<day>\d\d?)\b",
        rf"\b{_DAY}\.(?P<month>\d{{1,2}})\.{_YEAR}\b",
        rf"\b(?P<first>\d{{1,2}})/(?P<second>\d{{1,2}})/{_YEAR}\b",
        rf"\b{_DAY}{_ORDINAL}\s*(?:of\s+)?{_MONTH}{_OPTIONAL_YEAR}",
        rf"\b{_MONTH},?\s*{_DAY}{_ORDINAL}\b(?![-:]){_OPTIONAL_YEAR}",
        rf"\b{_MONTH},?\s+{_YEAR}\b",
    )
]


def parse_date(text: str) -> datetime:
    """Read a date with or without a time of day; without one the time is midnight.

    The result is naive and in whole seconds: a zone is dropped and the clock time kept, since dialogues speak of local
    days. Forms whose day and month could be swapped (``05/08/2023``) are refused.

    Raises:
        ValueError: not one of the accepted forms, or no such day or time. The message lists the forms.
    """
    stripped = text.strip()
    for pattern in _PATTERNS:
        if match := pattern.fullmatch(stripped):
            return _from_match(match, text)
    raise ValueError(f"{text!r} is not a date; write {ACCEPTED}")


def rewrite_dates(text: str) -> str:
    """Write every date within ``text`` as ``7 May 2023``, ``7 May`` or ``May 2023``; the rest stays as it is.

    Understood are ``2023-05-07``, ``7.5.2023``, ``5/27/2023`` (where only one of the two can be the month) and English
    month names, full or short, in either order, with or without ordinals, commas and the year. What is no day of the
    calendar stays as it is.
    """
    for pattern in _WITHIN:
        text = pattern.sub(_rewritten, text)
    return text


def _rewritten(match: re.Match[str]) -> str:
    part = {name: value for name, value in match.groupdict().items() if value}
    if "name" in part:
        month = _MONTH_NUMBERS[part["name"].lower()]
    elif "first" in part:
        first, second = int(part["first"]), int(part["second"])
        if first <= 12 and second <= 12 and first != second:
            return match[0]
        part["day"], month = (str(second), first) if second > 12 else (str(first), second)
    else:
        month = int(part["month"])
    # a leap year where none is given, so that 29 February is a day
    year, day = int(part.get("year", 2000)), int(part.get("day", 1))
    try:
        datetime(year, month, day)
    except ValueError:
        return match[0]
    return " ".join(
        [*([str(day)] if "day" in part else []), MONTHS[month - 1], *([str(year)] if "year" in part else [])]
    )


def _from_match(match: re.Match[str], text: str) -> datetime:
    part = match.groupdict()
    month = int(part["month"]) if part.get("month") else _MONTH_NUMBERS.get((part.get("name") or "").lower())
    if month is None:
        raise ValueError(f"{text!r} is not a date: no month is called {part['name']!r}")
    hour = int(part["hour"] or 0)
    if part["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} is not a time: with am or pm the hour is 1 to 12")
        hour = hour % 12 + (12 if part["half"].lower() == "p" else 0)
    try:
        return datetime(
            int(part["year"]), month, int(part["day"]), hour, int(part["minute"] or 0), int(part["second"] or 0)
        )
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from error
