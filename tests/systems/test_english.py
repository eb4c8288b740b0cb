"""Sentences, questions and times of English, as the rules of CogMem and Cognis read them."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlmf.systems import english
from mlmf.systems.english import is_question, names_a_time, split_sentences


def test_the_examples_hold() -> None:
    assert doctest.testmod(english).failed == 0


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is about my Ph.D. research. Nice!", ["It is about my Ph.D. research.", "Nice!"]),
        ('She said yes! "Wow." (Really.)', ["She said yes!", '"Wow." (Really.)']),
        ("One\n\nTwo. ", ["One", "Two."]),
        ("I love it. [shares a picture: a dog]", ["I love it. [shares a picture: a dog]"]),
        ("  ", []),
    ],
)
def test_a_text_is_split_where_a_sentence_ends(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(text=st.text("aB .?!\n[", max_size=30), apart=st.booleans())
def test_nothing_is_lost(text: str, apart: bool) -> None:
    assert "".join("".join(split_sentences(text, captions_apart=apart)).split()) == "".join(text.split())


def test_what_asks_and_what_names_a_time() -> None:
    assert is_question("Are you there? ") and not is_question("You are there.")
    assert all(map(names_a_time, ("See you on Friday", "It was two years ago", "in JUNE")))
    assert not any(map(names_a_time, ("I may come", "the lasting weekender")))
