from __future__ import annotations

from mlmf.memory.nodes import Node, chains, versions


def node(session: int, newer: tuple[int, int] | None = None) -> Node:
    return Node(session, 0, f"D{session}", f"line {session}", superseded_by=newer)


def test_a_chain_is_found_from_each_of_its_versions() -> None:
    listed = [node(0, (2, 0)), node(1), node(2, (4, 0)), node(3), node(4)]
    assert [versions(listed, i) for i in range(5)] == [[0, 2, 4], [1], [0, 2, 4], [3], [0, 2, 4]]
    assert chains(listed) == [[0, 2, 4]]


def test_two_turns_replaced_by_the_same_one_are_versions_of_it() -> None:
    listed = [node(0, (2, 0)), node(1, (2, 0)), node(2)]
    assert versions(listed, 1) == [0, 1, 2]


def test_a_link_to_a_pruned_version_ends_there_and_still_ties() -> None:
    listed = [node(0, (5, 0)), node(1, (5, 0)), node(2)]
    assert versions(listed, 0) == [0, 1]
    assert chains(listed) == [[0, 1]]
    assert chains([node(0, (5, 0)), node(2)]) == []


def test_links_that_go_in_circles_come_to_an_end() -> None:
    listed = [node(0, (1, 0)), node(1, (0, 0)), node(2, (2, 0))]
    assert versions(listed, 0) == [0, 1] and versions(listed, 2) == [2]


def test_superseded_says_whether_there_is_a_link() -> None:
    assert node(0, (1, 0)).superseded and not node(0).superseded
    assert node(3).key == (3, 0) and not node(3).is_session
