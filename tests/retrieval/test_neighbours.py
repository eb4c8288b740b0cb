"""What stands beside a found turn, within its session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlmf.retrieval.neighbours import with_neighbours


def test_found_turns_come_first_then_what_was_said_around_each_nearest_first() -> None:
    sessions = [0, 0, 0, 0, 0, 1, 1]
    assert with_neighbours([2], sessions, 2) == [2, 1, 3, 0, 4]
    assert with_neighbours([5, 0], sessions, 1) == [5, 0, 6, 1]
    assert with_neighbours([4, 2], sessions, 0) == [4, 2]


@given(
    sessions=st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted),
    found=st.sets(st.integers(0, 11)),
    count=st.integers(0, 3),
)
def test_every_turn_is_there_once_and_near_one_that_was_found_in_its_session(
    sessions: list[int], found: set[int], count: int
) -> None:
    hits = sorted(position for position in found if position < len(sessions))
    wanted = with_neighbours(hits, sessions, count)
    near = {p for p, s in enumerate(sessions) for h in hits if abs(p - h) <= count and s == sessions[h]}
    assert set(wanted) == near
    assert len(set(wanted)) == len(wanted)
    assert wanted[: len(hits)] == hits
