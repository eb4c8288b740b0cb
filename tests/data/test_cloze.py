"""Cloze probes: each blank can be filled from one dialogue alone, and everybody gets the same file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlmf.data.cloze import BLANK, Cloze, find_clozes, main, make_probes
from mlmf.data.locco import load_locco, load_probes, with_probes
from mlmf.paths import sha256_of
from mlmf.types import Conversation, Session, Turn


def dialogue(user: str, *said: str) -> Conversation:
    sessions = tuple(Session(i, None, (Turn(f"S{i}:0", "User", text),)) for i, text in enumerate(said))
    return Conversation(user, sessions)


def answers(*said: str) -> list[str]:
    return [cloze.answer for cloze in find_clozes(dialogue("1", *said))]


def test_names_and_numbers_of_one_dialogue_become_blanks() -> None:
    said = "I spent the weekend at Lakewood Park with Mia and walked 12 miles."
    found = find_clozes(dialogue("1", said, "Nothing else happened on that day."))
    assert [cloze.answer for cloze in found] == ["Lakewood Park", "Mia", "12"]
    assert found[0] == Cloze("1", 0, said, "Lakewood Park")
    assert found[0].question == (
        f'What belongs in the blank of what I said: "I spent the weekend at {BLANK} with Mia and walked 12 miles"?'
    )


@pytest.mark.parametrize(
    "said",
    [
        ("I met Mia at the old station again.", "And there was mia in the garden."),  # told twice
        ("I met Mia again.",),  # too short to be about something
        ("Then Mia came and we met Mia at home.",),  # twice in the sentence
        ("Yesterday we all went to the lake in the rain.", "I'm so glad that I\u2019m here with you now."),
        ("We looked at everything in the shop 'Fiona's Woodworks' for hours.",),  # half of a name
    ],
)
def test_what_is_ambiguous_or_no_span_becomes_no_blank(said: tuple[str, ...]) -> None:
    assert answers(*said) == []


def test_probes_are_drawn_by_period_and_traps_never_happened() -> None:
    places = ("Rome", "Oslo", "Paris", "Quito", "Lima", "Cairo")
    mine = dialogue("1", *(f"we all went to the sunny town of {place} together." for place in places))
    other = dialogue(
        "2", *(f"I never told anybody about the trip to {place} before." for place in (*places[:5], "Bern"))
    )
    probes = make_probes([mine, other], ["1"], per_period=2, traps=3)
    assert [(probe["kind"], probe.get("period"), probe.get("answer")) for probe in probes[:-1]] == [
        ("fact", period, place) for period, place in enumerate(places, start=1)
    ]
    assert (probes[-1]["kind"], probes[-1]["lure"]) == ("trap", "Bern")
    assert probes == make_probes([mine, other], ["1"], per_period=2, traps=3)


def test_the_file_is_the_same_everywhere_and_fits_the_dialogues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cloze.jsonl"
    assert main(["--output", str(path)]) == 0
    printed = capsys.readouterr().out
    assert f"sha256 {sha256_of(path)}" in printed
    # a change of the rules or of the draw changes everybody's probes, so it must be meant
    assert sha256_of(path).startswith("7680f3cf62ab")
    users = with_probes(load_locco(), load_probes(path))
    asked = [user for user in users if user.questions]
    written = {str(probe.user) for split in ("train", "test") for probe in load_probes(split)}
    assert len(asked) == 104 - len(written) == 48
    for user in asked:
        for question in user.questions:
            assert question.session is not None
            texts = [" ".join(turn.text for turn in session.turns).casefold() for session in user.sessions]
            span = (question.lure if question.is_trap else question.answer or "").casefold()  # type: ignore[union-attr]
            where = [i for i, text in enumerate(texts) if re.search(rf"(?<!\w){re.escape(span)}(?!\w)", text)]
            assert where == ([] if question.is_trap else [question.session])


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--output", str(tmp_path / "file" / "cloze.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("error: output")
