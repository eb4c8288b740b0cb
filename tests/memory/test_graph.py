from __future__ import annotations

from itertools import pairwise

import pytest

from mlmf.memory.graph import edges, entities, to_networkx
from mlmf.memory.state import Node


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('We saw "Blue Velvet" at The Indie Pulse with Sarah.', ("blue velvet", "the indie pulse", "sarah")),
        ("I went to New York with Maria and Tom.", ("new york", "maria", "tom")),
        ("He liked the Museum of Modern Art.", ("museum of modern art",)),
        ("What a day! It was so nice, thanks.", ()),
        ("Sarah met Sarah", ("sarah",)),
        ("nothing here is named", ()),
        ("", ()),
    ],
)
def test_entities_of_a_sentence(text: str, expected: tuple[str, ...]) -> None:
    assert entities(text) == expected


def nodes() -> list[Node]:
    """Two sessions: who is mentioned decides what hangs together."""
    return [
        Node(0, -1, "", "[1 May 2023]"),
        Node(0, 0, "D0:0", "a", ("sarah",)),
        Node(0, 1, "D0:1", "b", ("paris",)),
        Node(1, -1, "", "[2 May 2023]"),
        Node(1, 0, "D1:0", "c", ("sarah", "rex")),
    ]


def test_edges_join_sessions_neighbours_and_shared_entities() -> None:
    assert set(edges(nodes())) == {
        (0, 1, "part_of"),
        (0, 2, "part_of"),
        (1, 2, "next"),
        (3, 4, "part_of"),
        (1, 4, "same_entity"),
    }


def test_edges_point_forward_and_skip_what_everyone_mentions() -> None:
    crowd = [Node(0, i, f"D0:{i}", "x", ("sarah",)) for i in range(33)]
    assert {kind for _, _, kind in edges(crowd)} == {"next"}
    assert {kind for _, _, kind in edges(crowd[:32])} == {"next", "same_entity"}
    assert all(i < j for i, j, _ in edges(crowd[:32]))


def test_edges_after_pruning_join_what_is_left() -> None:
    left = [node for node in nodes() if node.turn_id != "D0:1" and not node.is_session]
    assert edges(left) == [(0, 1, "same_entity")]
    assert edges([]) == []


def test_networkx_graph_for_people() -> None:
    listed = nodes()
    graph = to_networkx(listed, [0.0, 0.5, 0.1, 0.0, 0.9])
    kinds = [data["kind"] for _, data in graph.nodes(data=True)]
    assert (kinds.count("session"), kinds.count("event"), kinds.count("entity")) == (2, 3, 3)
    assert graph.nodes[4] == {
        "kind": "event", "label": "c", "session": 1, "turn": 0, "turn_id": "D1:0", "salience": 0.9,
        "superseded": False,
    }  # fmt: skip
    assert sorted(graph.neighbors("sarah")) == [1, 4]
    mentions = {(i, name) for i, name, data in graph.edges(data=True) if data["kind"] == "mention"}
    assert {tuple(sorted(map(str, pair))) for pair in mentions} == {
        ("1", "sarah"), ("2", "paris"), ("4", "sarah"), ("4", "rex"),
    }  # fmt: skip
    chain = [1, 2]
    assert all("next" in {d["kind"] for d in graph.get_edge_data(i, j).values()} for i, j in pairwise(chain))
