"""The rules: what is a fact, what it is about, and what becomes of it beside others."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime

import pytest

from mlmf.retrieval.dates import Span
from mlmf.systems.cognis.extract import RuleExtractor, content_words
from mlmf.systems.cognis.records import Candidate, Memory, Similar

DAY = datetime(2023, 5, 9, 12)


def message(text: str, speaker: str = "Anna") -> Memory:
    return Memory("m", "message", speaker, text, DAY, 0, 4, ("S0:4",), "m")


def candidates(text: str) -> list[Candidate]:
    return list(RuleExtractor().extract([message(text)], []).candidates)


def fact(text: str, speaker: str = "Anna") -> Memory:
    (candidate,) = RuleExtractor().extract([message(text, speaker)], []).candidates
    return replace(candidate.as_memory(), id=text, chain=text)


def test_sentences_that_state_something_are_facts_with_their_days_written_out() -> None:
    found = candidates("Hi Ben! I went to a support group yesterday, so powerful. How are you? Wow, great! Bye.")
    assert [(one.text, one.turn_ids, one.position) for one in found] == [
        ("I went to a support group yesterday (8 May 2023), so powerful.", ("S0:4",), 4)
    ]
    assert found[0].spans == (Span(date(2023, 5, 8), date(2023, 5, 8)),)
    assert found[0].entities == ("support",)


def test_a_shared_picture_is_a_fact_of_its_own() -> None:
    assert [one.text for one in candidates("Look! [shares a picture: a red bicycle on a beach]")] == [
        "[shares a picture: a red bicycle on a beach]"
    ]


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("I live in Lisbon.", "anna|home"),
        ("We just moved to a small flat in Porto", "anna|home"),
        ("I'm working as a nurse", "anna|work"),
        ("I got engaged!", "anna|relationship"),
        ("I'm 34", "anna|age"),
        ("My favorite band is Nirvana", "anna|favourite band"),
        ("My dog's name is Rex", "anna|name of dog"),
        ("I live for music, as you know", ""),
        ("I'm 20 minutes late for dinner", ""),
    ],
)
def test_what_one_has_one_of_at_a_time_is_a_topic(text: str, topic: str) -> None:
    assert [one.topic for one in candidates(text)] == [topic]


@pytest.mark.parametrize(
    ("new", "known", "cosine", "action"),
    [
        ("I moved to Porto.", "I live in Lisbon.", 0.1, "UPDATE"),
        ("I live in Lisbon!", "I live in Lisbon.", 0.1, "NONE"),
        ("We adopted a grey cat", "We adopted a grey cat!", 0.99, "NONE"),
        ("We adopted a grey cat", "We sold the green car", 0.5, "ADD"),
        ("The concert costs 30 pounds here", "The concert costs 25 pounds here", 0.95, "UPDATE"),
        ("The concert costs 30 pounds here", "The concert costs 25 pounds here", 0.7, "ADD"),
        ("We saw 30 birds and deer there", "We saw 25 birds and deer there", 0.95, "ADD"),
        ("The concert on 3 May 2023 is in Porto", "The concert on 4 May 2023 is in Porto", 0.95, "ADD"),
        ("Please forget what I said about the violin", "The concert costs 25 pounds here", 0.9, "NONE"),
        ("Please forget what I said about the concert", "The concert costs 25 pounds here", 0.5, "DELETE"),
    ],
)
def test_what_becomes_of_a_fact(new: str, known: str, cosine: float, action: str) -> None:
    (candidate,) = candidates(new)
    decision = RuleExtractor().decide(candidate, [Similar(fact(known), cosine)])
    assert decision.action == action
    assert (decision.replaces is not None) == (action in ("UPDATE", "DELETE"))
    assert RuleExtractor().decide(candidate, [Similar(fact(known, "Ben"), cosine)]).action in ("ADD", "NONE")


def test_of_several_facts_about_a_topic_the_newest_is_replaced() -> None:
    known = [Similar(fact("I live in Lisbon."), 1.0), Similar(fact("I live in Porto."), 1.0)]
    (candidate,) = candidates("I live in Faro.")
    assert RuleExtractor().decide(candidate, known).replaces == known[1].memory


def test_a_text_of_empty_words_alone_keeps_them() -> None:
    assert content_words("Who was it?") == ["who", "was", "it"]
    assert content_words("Where did Anna's cat go?") == ["anna", "cat", "go"]
