"""Who a question names, among the speakers of its conversation."""

from __future__ import annotations

import unicodedata

import pytest

from mlmf.memory.entities import extract_by_rules
from mlmf.memory.speakers import named_speakers


@pytest.mark.parametrize(
    ("question", "speakers", "named"),
    [
        ("What did you recommend?", ["User", "Assistant"], [0, 1]),
        ("What did I tell you?", ["User", "Assistant"], [1, 0]),
        ("What did you recommend to me?", ["User", "Assistant"], [1, 1]),
        ("Where is my phone?", ["User", "Anna"], [1, 0]),
        ("Which phone did Anna recommend to me?", ["User", "Anna"], [0, 1]),
        ("What did I recommend to Anna?", ["User", "Anna"], [1, 1]),
        ("What is the user interface Anna likes?", ["User", "Anna"], [0, 1]),
        ("Who won World War I, Anna?", ["User", "Anna"], [0, 1]),
        ("What will the hotel cost?", ["Will", "Anna"], [0, 0]),
        ("When will Anna visit Rome?", ["Will", "Anna"], [0, 1]),
        ("Will Anna visit Rome?", ["Will", "Anna"], [0, 1]),
        ("Where does Will live?", ["Will", "Anna"], [1, 0]),
        ("Who left a mark on anna's boat?", ["Mark", "Anna"], [0, 1]),
        ("What did Sam Jr. buy?", ["Sam", "Sam Jr."], [0, 1]),
        ("What did Sam and Sam Jr. buy?", ["Sam", "Sam Jr."], [1, 1]),
        ("Where did Ann Marie go?", ["Ann", "Ann Marie"], [0, 1]),
        ("Where did Caroline go?", ["Caroline Smith", "Bob"], [1, 0]),
        ("Where did Ann go?", ["Ann Smith", "Ann Miller"], [0, 0]),
        ("प्रिया कहाँ रहती है?", ["प्रिया", "Bob"], [1, 0]),
        ("太郎はどこに住んでいますか", ["太郎", "花子"], [1, 0]),
        ("What is Annette's?", ["Ann", ""], [0, 0]),
    ],
)
def test_whom_a_question_names(question: str, speakers: list[str], named: list[int]) -> None:
    assert named_speakers(question, speakers) == [bool(one) for one in named]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_are_the_same_however_they_are_written(form: str) -> None:
    speaker = unicodedata.normalize("NFC" if form == "NFD" else "NFD", "José")
    text = unicodedata.normalize(form, "where does josé live?")  # type: ignore[arg-type]
    assert named_speakers(text, [speaker, "Ben"]) == [True, False]
    assert speaker.lower() in extract_by_rules(text, [speaker])
