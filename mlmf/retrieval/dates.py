"""The days that a text speaks of: absolute and relative English dates, as spans of days.

A pattern finds the phrase and how long a time it names (a day, a week, a month); ``dateparser`` reads the point in time
in it, with the date of the question or of the session as its base. Where a phrase fits the past and the future, the past
is taken, because people who ask a memory ask about what was.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from importlib import import_module

from mlmf.errors import UserError
from mlmf.types import MONTHS, format_date, format_month


@dataclass(frozen=True, slots=True)
class Span:
    """Days from ``start`` to ``end``, both included."""

    start: date
    end: date

    def distance(self, other: Span) -> int:
        """Days between the two; 0 where they share a day."""
        return max(0, (other.start - self.end).days, (self.start - other.end).days)


@dataclass(frozen=True, slots=True)
class Mention:
    """A phrase that names a time."""

    start: int
    """Position of its first character in the text."""
    end: int
    """Position after its last character."""
    span: Span
    is_relative: bool
    """Whether one must know when it was said to know what it means."""


DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
            "nine": 9, "ten": 10, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3}  # fmt: skip
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first month, in the northern half

_month = rf"(?:{'|'.join(MONTHS)}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_weekday = rf"(?:{'|'.join(DAYS)})"
_year = r"(?:19|20)\d\d"
_count = rf"(?:\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_unit = r"(?:day|week|weekend|month|year)"
_ABSOLUTE = (
    rf"\d{{4}}-\d\d-\d\d|\d{{1,2}}(?:st|nd|rd|th)?(?:\s+of)?\s+{_month}(?:,?\s+{_year})?"
    rf"|{_month}\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,?\s+{_year})?|{_month},?\s+{_year}"
)
_DATE = re.compile(rf"\b(?:{_ABSOLUTE})(?!\w)", re.IGNORECASE)
_POINT = (
    rf"{_ABSOLUTE}|the\s+day\s+before\s+yesterday|yesterday|last\s+night|today|tonight|tomorrow"
    rf"|(?:last|this|next)\s+(?:{_unit}|{_weekday}|{'|'.join(_SEASONS)}|{_month})"
    rf"|{_count}\s+{_unit}s?\s+ago|(?:in|of|since|until|by)\s+(?:{_month}|{_year})|on\s+{_weekday}"
)
_PHRASE = re.compile(
    rf"\b(?:(?:the\s+)?(?P<step>{_unit}|{_weekday}|(?P<count>{_count})\s+(?P<unit>day|week|month|year)s?)\s+"
    rf"(?P<way>before|after|of)\s+)?(?P<point>{_POINT})(?!\w)",
    re.IGNORECASE,
)
_MONTH_ALONE = re.compile(rf"(?:(?:in|of|since|until|by|last|this|next)\s+)?(?P<month>{_month})", re.IGNORECASE)


def find_dates(text: str, base: datetime | None) -> list[Mention]:
    """The times that a text names, in order.

    Args:
        text: English, such as a question or what was said in a turn.
        base: when it was said; without one only dates with their year are found.

    Raises:
        UserError: the extra ``retrieval`` is not installed.

    >>> [m.span.start.isoformat() for m in find_dates("What did she do the week before 9 June?", datetime(2023, 7, 1))]
    ['2023-06-02']
    """
    return list(_mentions(text, base))


def describe(span: Span) -> str:
    """A span in words: ``7 May 2023``, ``May 2023``, ``2022``, or ``1 May 2023 to 7 May 2023``."""
    start, end = (datetime(day.year, day.month, day.day) for day in (span.start, span.end))
    if start == end:
        return format_date(start)
    if span == _whole_year(start):
        return str(start.year)
    return format_month(start) if span == _whole_month(start) else f"{format_date(start)} to {format_date(end)}"


def _mentions(text: str, base: datetime | None) -> Iterator[Mention]:
    for match in _PHRASE.finditer(text):
        point = match["point"]
        if re.search(r"\bmay\b", point) and not re.search(r"\d", point):
            continue  # the verb
        span = _point(" ".join(point.lower().split()), base)
        if span is None:
            continue
        moved = _step(match, span) if match["step"] else span
        is_absolute = re.search(_year, point) is not None
        yield Mention(match.start(), match.end(), moved, not is_absolute)


def _point(phrase: str, base: datetime | None) -> Span | None:
    """The span of one phrase without a step before it."""
    if year := re.fullmatch(rf"(?:in|of|since|until|by)\s+({_year})", phrase):
        return _whole_year(datetime(int(year[1]), 1, 1))
    if _DATE.fullmatch(phrase):
        return _absolute(phrase, base)
    if base is None:
        return None
    if ago := re.fullmatch(rf"({_count})\s+({_unit})s?\s+ago", phrase):
        return _around(_shift(base, ago[2], -_number(ago[1])), ago[2])
    if month := _MONTH_ALONE.fullmatch(phrase):
        when = _parse(month["month"], base)
        later = phrase.startswith("next") and when is not None and when <= base
        if when is None:
            return None
        return _whole_month(when.replace(year=when.year + 1, day=1) if later else when)
    near, _, rest = phrase.partition(" ")
    if near in ("last", "this", "next", "on") and rest != "night":
        return _named(near, rest, base)
    when = _parse({"last night": "yesterday", "tonight": "today"}.get(phrase, phrase), base)
    return None if when is None else _one_day(when)


def _absolute(phrase: str, base: datetime | None) -> Span | None:
    has_day = re.search(r"\b\d{1,2}(?!\d)", phrase) is not None
    if base is None and not re.search(_year, phrase):
        return None
    when = _parse(phrase.replace(" of ", " "), base or datetime(2000, 1, 1))
    if when is None:
        return None
    return _one_day(when) if has_day else _whole_month(when)


def _named(near: str, name: str, base: datetime) -> Span:
    """``last week``, ``this month``, ``next Friday``, ``last summer``, ``on Sunday``."""
    direction = {"last": -1, "this": 0, "next": 1, "on": -1}[near]
    if name in DAYS:
        ahead = (DAYS.index(name) - base.weekday()) % 7
        if direction < 0:
            same_day = near == "on" and ahead == 0
            return _one_day(base if same_day else base + timedelta(days=ahead - 7))
        return _one_day(base + timedelta(days=ahead or (7 if near == "next" else 0)))
    if name in _SEASONS:
        return _season(_SEASONS[name], direction, base)
    if name == "weekend":
        return _weekend(base + timedelta(weeks=direction if direction > 0 else 0), before=direction < 0)
    if name == "week" and direction < 0:
        return Span((base - timedelta(days=7)).date(), (base - timedelta(days=1)).date())
    if name == "week":
        monday = base + timedelta(weeks=direction, days=-base.weekday())
        return Span(monday.date(), (monday + timedelta(days=6)).date())
    return _around(_shift(base, name, direction), name)


def _step(match: re.Match[str], point: Span) -> Span:
    """``the week before``, ``the Friday after``, ``two months before``, ``the week of`` a point."""
    way, name = match["way"].lower(), match["step"].lower()
    if match["unit"]:
        number = _number(" ".join(match["count"].lower().split()))
        edge, sign = (point.start, -1) if way == "before" else (point.end, 1)
        return _around(_shift(_noon(edge), match["unit"].lower(), sign * number), match["unit"].lower())
    if way == "of":
        monday = point.start - timedelta(days=point.start.weekday())
        return Span(monday, monday + timedelta(days=6)) if name == "week" else point
    edge = _noon(point.start if way == "before" else point.end)
    sign = -1 if way == "before" else 1
    if name in DAYS:
        ahead = (sign * (DAYS.index(name) - edge.weekday())) % 7 or 7
        return _one_day(edge + timedelta(days=sign * ahead))
    if name == "weekend":
        return _weekend(edge, before=True) if sign < 0 else _weekend(edge + timedelta(days=1), before=False)
    if name == "week":
        days = sorted((edge + timedelta(days=sign), edge + timedelta(days=7 * sign)))
        return Span(days[0].date(), days[1].date())
    return _around(_shift(edge, name, sign), name)


def _weekend(near: datetime, *, before: bool) -> Span:
    """The last Saturday and Sunday wholly before a day, or the next ones from it on."""
    if before:
        sunday = near - timedelta(days=near.weekday() + 1)
        return Span((sunday - timedelta(days=1)).date(), sunday.date())
    saturday = near + timedelta(days=(5 - near.weekday()) if near.weekday() < 6 else -1)
    return Span(saturday.date(), (saturday + timedelta(days=1)).date())


def _season(first_month: int, direction: int, base: datetime) -> Span:
    """Three whole months; the last one is the latest that is over."""
    spans = [_months(year, first_month) for year in range(base.year - 2, base.year + 2)]
    if direction < 0:
        return [span for span in spans if span.end < base.date()][-1]
    return next(span for span in spans if (span.end >= base.date() if direction == 0 else span.start > base.date()))


def _months(year: int, first: int) -> Span:
    last_year, last = (year, first + 2) if first + 2 <= 12 else (year + 1, first - 10)
    return Span(date(year, first, 1), date(last_year, last, monthrange(last_year, last)[1]))


def _around(when: datetime, unit: str) -> Span:
    """What "a week ago" may mean: the day itself, three days on either side, or the whole month or year."""
    if unit == "day":
        return _one_day(when)
    if unit in ("week", "weekend"):
        return Span((when - timedelta(days=3)).date(), (when + timedelta(days=3)).date())
    return _whole_month(when) if unit == "month" else _whole_year(when)


def _shift(when: datetime, unit: str, number: int) -> datetime:
    if unit in ("day", "week", "weekend"):
        return when + timedelta(days=number * (1 if unit == "day" else 7))
    months = when.year * 12 + when.month - 1 + number * (1 if unit == "month" else 12)
    year, month = divmod(months, 12)
    return when.replace(year=year, month=month + 1, day=min(when.day, monthrange(year, month + 1)[1]))


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word]


def _noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12)


def _one_day(when: datetime) -> Span:
    return Span(when.date(), when.date())


def _whole_month(when: datetime) -> Span:
    return Span(date(when.year, when.month, 1), date(when.year, when.month, monthrange(when.year, when.month)[1]))


def _whole_year(when: datetime) -> Span:
    return Span(date(when.year, 1, 1), date(when.year, 12, 31))


@lru_cache(maxsize=4096)
def _parse(phrase: str, base: datetime) -> datetime | None:
    try:
        dateparser = import_module("dateparser")
    except ImportError as error:
        raise UserError(
            "dates in questions are read by dateparser, which is not installed: pip install 'mlmf[retrieval]'"
        ) from error
    settings = {
        "RELATIVE_BASE": base.replace(tzinfo=None),
        "PREFER_DATES_FROM": "past",
        "PREFER_DAY_OF_MONTH": "first",
    }
    found: datetime | None = dateparser.parse(phrase, languages=["en"], settings=settings)
    return found
