"""Where event nodes lie, and what a question says about where its answer stands."""

from __future__ import annotations

import pytest
import torch

from mlmf.memory.cues import asks_about_past, by_whom, when, whose
from mlmf.memory.layout import Layout
from mlmf.memory.nodes import Node


def turn(session: int, number: int, speaker: str, *entities: str) -> Node:
    return Node(
        session, number, f"D{session}:{number}", "", entities, speaker=speaker, date=f"202{session}-05-0{session + 1}"
    )


ROWS = (
    # session 1 was written first
    (Node(1, -1, "", ""), turn(1, 0, "Ann", "boat"), turn(1, 1, "Ben"), turn(0, 0, "Ann"), turn(0, 1, "Ann", "boat")),
    (turn(2, 0, "user"), Node(2, 1, "D2:1", "", superseded_by=(3, 0), speaker="assistant")),
)  # fmt: skip
LAYOUT = Layout.of(ROWS, 5, torch.device("cpu"))


def test_places_hold_session_neighbours_age_and_what_can_be_found() -> None:
    assert LAYOUT.session.tolist() == [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0]]
    assert LAYOUT.before.tolist() == [[-1, -1, 1, -1, 3], [-1, 0, -1, -1, -1]]
    assert LAYOUT.after.tolist() == [[-1, 2, -1, 4, -1], [1, -1, -1, -1, -1]]
    assert LAYOUT.newest_first.tolist() == [[2, 1, 0, 4, 3], [2, 3, 4, 1, 0]]
    assert LAYOUT.findable.tolist() == [[False, True, True, True, True], [True, False, False, False, False]]
    assert sorted(map(tuple, LAYOUT.ties.T.tolist())) == [(0, 1, 4), (0, 4, 1)]
    assert LAYOUT.n_nodes.tolist() == [5, 2] and LAYOUT.n_sessions.tolist() == [2, 1]


def test_some_places_are_laid_out_as_if_there_were_no_others() -> None:
    part = LAYOUT.row(0).take(torch.tensor([1, 3, 4]))
    assert part.before.tolist() == [[-1, -1, 1]] and part.after.tolist() == [[-1, 2, -1]]
    assert part.newest_first.tolist() == [[0, 2, 1]] and part.ties.tolist() == [[0, 0], [0, 2], [2, 0]]
    assert not LAYOUT.row(0).take(torch.tensor([0, 1])).ties.numel()
    assert LAYOUT.row(1).ties.shape == (3, 0)


@pytest.mark.parametrize(
    ("question", "said_by"),
    [
        ("What did ben buy?", [0, 0, 1, 0, 0]),
        ("What is Ann's boat called?", [0, 1, 0, 1, 1]),
        ("Where did Ann and Ben meet?", [0] * 5),
        ("What is Annette's?", [0] * 5),
        ("Where do I live?", [0] * 5),
    ],
)
def test_a_speaker_counts_who_is_named_alone(question: str, said_by: list[int]) -> None:
    assert by_whom([question], LAYOUT.row(0)).tolist() == [said_by]


def test_the_first_person_is_the_user_and_every_question_has_its_own_conversation() -> None:
    found = by_whom(["Did Ben?", "Where do I live?"], LAYOUT)
    assert found.tolist() == [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did ben buy?", [0, 2, 1, 2, 2]),
        ("What is Ann's boat called?", [0, 1, 2, 1, 1]),
        ("Where did Ann and Ben meet?", [0] * 5),
        ("What is Annette's?", [0] * 5),
    ],
)
def test_whose_words_a_turn_is_depends_on_who_is_named(question: str, expected: list[int]) -> None:
    assert whose([question], LAYOUT.row(0)).tolist() == [expected]


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ("What happened in May 2021?", [0, 1, 1, 0, 0]),
        ("What happened in 2020 or 2021?", [0, 1, 1, 1, 1]),
        ("What happened in May?", [0, 1, 1, 1, 1]),
        ("What may happen?", [0] * 5),
        ("In June 2021?", [0] * 5),
    ],
)
def test_months_and_years_of_a_question_fit_the_dates(question: str, fits: list[int]) -> None:
    assert when([question], LAYOUT.row(0)).tolist() == [fits]


def test_the_past_is_asked_about_in_its_own_words() -> None:
    assert asks_about_past("Where did I USED TO live?") and asks_about_past("My former job?")
    assert not asks_about_past("Where do I live now?")
