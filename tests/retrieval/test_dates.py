"""Phrases that name a time, against a calendar; 20 June 2023 was a Tuesday."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmf.retrieval.dates import Span, describe, find_dates

BASE = datetime(2023, 6, 20, 15, 30)


def spans(text: str, base: datetime | None = BASE) -> list[tuple[str, str]]:
    return [(m.span.start.isoformat(), m.span.end.isoformat()) for m in find_dates(text, base)]


@pytest.mark.parametrize(
    ("phrase", "start", "end"),
    [
        ("9 June 2022", "2022-06-09", "2022-06-09"),
        ("June 27, 2023", "2023-06-27", "2023-06-27"),
        ("the 3rd of May", "2023-05-03", "2023-05-03"),
        ("2023-05-07", "2023-05-07", "2023-05-07"),
        ("May 2023", "2023-05-01", "2023-05-31"),
        ("in May", "2023-05-01", "2023-05-31"),
        ("in July", "2022-07-01", "2022-07-31"),
        ("in 2022", "2022-01-01", "2022-12-31"),
        ("yesterday", "2023-06-19", "2023-06-19"),
        ("last night", "2023-06-19", "2023-06-19"),
        ("the day before yesterday", "2023-06-18", "2023-06-18"),
        ("today", "2023-06-20", "2023-06-20"),
        ("last week", "2023-06-13", "2023-06-19"),
        ("this week", "2023-06-19", "2023-06-25"),
        ("next week", "2023-06-26", "2023-07-02"),
        ("last weekend", "2023-06-17", "2023-06-18"),
        ("this weekend", "2023-06-24", "2023-06-25"),
        ("next weekend", "2023-07-01", "2023-07-02"),
        ("last month", "2023-05-01", "2023-05-31"),
        ("next month", "2023-07-01", "2023-07-31"),
        ("last year", "2022-01-01", "2022-12-31"),
        ("last Friday", "2023-06-16", "2023-06-16"),
        ("last Tuesday", "2023-06-13", "2023-06-13"),
        ("on Tuesday", "2023-06-20", "2023-06-20"),
        ("next Friday", "2023-06-23", "2023-06-23"),
        ("last summer", "2022-06-01", "2022-08-31"),
        ("this summer", "2023-06-01", "2023-08-31"),
        ("last winter", "2022-12-01", "2023-02-28"),
        ("two days ago", "2023-06-18", "2023-06-18"),
        ("a week ago", "2023-06-10", "2023-06-16"),
        ("3 months ago", "2023-03-01", "2023-03-31"),
        ("a few years ago", "2020-01-01", "2020-12-31"),
        ("the week before 9 June", "2023-06-02", "2023-06-08"),
        ("the week after 9 June 2023", "2023-06-10", "2023-06-16"),
        ("the week of 9 June", "2023-06-05", "2023-06-11"),
        ("the day before 1 March 2024", "2024-02-29", "2024-02-29"),
        ("The sunday before 25 May 2023", "2023-05-21", "2023-05-21"),
        ("the Friday before 9 June", "2023-06-02", "2023-06-02"),
        ("the weekend before 17 July 2023", "2023-07-15", "2023-07-16"),
        ("the weekend after 9 June", "2023-06-10", "2023-06-11"),
        ("the month before May 2023", "2023-04-01", "2023-04-30"),
        ("two weeks before 20 May 2023", "2023-05-03", "2023-05-09"),
        ("two months after 31 December 2022", "2023-02-01", "2023-02-28"),
    ],
)
def test_a_phrase_is_the_days_it_means(phrase: str, start: str, end: str) -> None:
    assert spans(f"What did she say about {phrase}, and why?") == [(start, end)]


def test_several_times_come_in_the_order_of_the_text() -> None:
    found = find_dates("Between 3 May 2023 and yesterday", BASE)
    assert [mention.span.start for mention in found] == [date(2023, 5, 3), date(2023, 6, 19)]
    assert [mention.is_relative for mention in found] == [False, True]


@pytest.mark.parametrize(
    "text", ["What may I do in this matter?", "They march on", "The second book", "Call 2023 people", "31 June 2023"]
)
def test_what_names_no_time_is_left_alone(text: str) -> None:
    assert spans(text) == []


def test_without_a_base_only_dates_with_a_year_are_known() -> None:
    assert spans("on 3 May, last week, on 4 May 2023, in 2022", None) == [
        ("2023-05-04", "2023-05-04"),
        ("2022-01-01", "2022-12-31"),
    ]


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (date(2023, 5, 7), date(2023, 5, 7), "7 May 2023"),
        (date(2023, 5, 1), date(2023, 5, 31), "May 2023"),
        (date(2023, 1, 1), date(2023, 12, 31), "2023"),
        (date(2023, 5, 1), date(2023, 5, 7), "1 May 2023 to 7 May 2023"),
    ],
)
def test_a_span_in_words(start: date, end: date, words: str) -> None:
    assert describe(Span(start, end)) == words


@given(first=st.dates(), second=st.dates(), days=st.integers(0, 40))
def test_distance_is_the_gap_between_two_spans(first: date, second: date, days: int) -> None:
    one, other = Span(first, first), Span(second, second)
    assert one.distance(other) == other.distance(one) == abs((first - second).days)
    assert one.distance(one) == 0


@given(base=st.datetimes(datetime(1971, 1, 1), datetime(2090, 1, 1)), phrase=st.sampled_from(
    ["last week", "next month", "last summer", "this winter", "two years ago", "the weekend before 9 June", "on Sunday"]
))  # fmt: skip
def test_every_base_gives_a_span_that_begins_before_it_ends(base: datetime, phrase: str) -> None:
    ((start, end),) = spans(phrase, base)
    assert start <= end
