"""Dates: every form that benchmarks and people use, and clear refusals."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmf.data.dates import parse_date
from mlmf.types import MONTHS, format_date

MOMENTS = st.datetimes(min_value=datetime(1000, 1, 1)).map(lambda moment: moment.replace(microsecond=0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56)),
        ("12:06 am on 11 November, 2022", datetime(2022, 11, 11, 0, 6)),
        ("12:30 pm on 1 January, 2024", datetime(2024, 1, 1, 12, 30)),
        (" 23 July, 2023", datetime(2023, 7, 23)),
        ("8 May 2023", datetime(2023, 5, 8)),
        ("8th may 2023", datetime(2023, 5, 8)),
        ("May 8, 2023", datetime(2023, 5, 8)),
        ("Sept. 1st 2023", datetime(2023, 9, 1)),
        ("May 8, 2023 at 1:56 p.m.", datetime(2023, 5, 8, 13, 56)),
        ("29.12.2023, 22:42:04", datetime(2023, 12, 29, 22, 42, 4)),
        ("2016-07-25", datetime(2016, 7, 25)),
        ("2016-07-25 09:05", datetime(2016, 7, 25, 9, 5)),
        ("2016-07-25T09:05:07.250Z", datetime(2016, 7, 25, 9, 5, 7)),
        ("2016-07-25T23:05:07+02:00", datetime(2016, 7, 25, 23, 5, 7)),
        ("29 February 2024", datetime(2024, 2, 29)),
    ],
)
def test_accepted_forms(text: str, expected: datetime) -> None:
    assert parse_date(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "05/08/2023",
        "2023",
        "2023-13-01",
        "2023-02-30",
        "29 February 2023",
        "8 Mai 2023",
        "31 June, 2023",
        "13:56 pm on 8 May, 2023",
        "0:10 am on 8 May, 2023",
        "25:00 on 8 May, 2023",
        "8 May 2023 or later",
        "8 May 23",
    ],
)
def test_refused_forms_are_named_in_the_message(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (date|time)") as caught:
        parse_date(text)
    assert repr(text) in str(caught.value)


@given(MOMENTS)
def test_reads_back_what_locomo_and_iso_write(moment: datetime) -> None:
    hour, half = moment.hour % 12 or 12, "am" if moment.hour < 12 else "pm"
    month = MONTHS[moment.month - 1]
    minute = moment.replace(second=0)
    assert parse_date(f"{hour}:{moment.minute:02} {half} on {moment.day} {month}, {moment.year}") == minute
    assert parse_date(moment.isoformat()) == moment
    assert parse_date(format_date(moment)) == moment.replace(hour=0, minute=0, second=0)


@given(st.text())
def test_any_text_is_a_date_or_a_value_error(text: str) -> None:
    try:
        assert isinstance(parse_date(text), datetime)
    except ValueError as error:
        assert repr(text) in str(error)
