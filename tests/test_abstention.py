"""Refusals are recognised in the many ways models write them, and claims that look like one are not."""

from __future__ import annotations

import pytest

from mlmf.abstention import ABSTENTION, OFFICIAL_PHRASES, is_abstention, is_official_abstention


@pytest.mark.parametrize(
    "text",
    [
        ABSTENTION,
        "I don't know.",
        "I don\u2019t know",
        "I do not have enough information to answer this.",
        "There is no information about that.",
        "No mention of a dog.",
        "Unknown.",
        "The answer is unknown.",
        "It is not specified in the conversation.",
        "The specific date isn't specified.",
        "Not stated",
        "that's not provided.",
        "The context does not mention her job.",
        "It cannot be determined from the context",
        "Sorry, I can't find that.",
        "  N/A ",
        '"Not mentioned"',
    ],
)
def test_refusals(text: str) -> None:
    assert is_abstention(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No",
        "None",
        "Unknown Mortal Orchestra",
        "No record label wanted her",
        "Not given a raise",
        "Not available on Sundays",
        "Not sure yet what to study",
        "She does not know how to swim",
        "He said nothing was mentioned about it",
        "I don't know, maybe Paris",
        "There is no information about it, but probably 2021",
        "No, he never told her",
    ],
)
def test_claims(text: str) -> None:
    assert not is_abstention(text)


@pytest.mark.parametrize("phrase", OFFICIAL_PHRASES)
def test_official_phrases_count_anywhere_and_in_any_case(phrase: str) -> None:
    text = f"She said that was {phrase.upper()}, I think"
    assert is_official_abstention(text)
    assert is_abstention(text)


def test_the_wider_list_is_not_official() -> None:
    assert not is_official_abstention("I don't know")
    assert not is_official_abstention("not specified")
