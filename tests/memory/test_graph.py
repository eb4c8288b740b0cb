from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlmf.memory.graph import degrees, edges, to_networkx
from mlmf.memory.nodes import Node


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


def test_degrees_count_the_edges_of_each_node() -> None:
    assert degrees(nodes()) == [2, 3, 2, 1, 2]
    assert degrees([]) == []


EMBEDDING = np.array([[1, 0], [0.6, 0.8], [0, 1], [1, 0], [0.8, 0.6]], dtype=np.float32)


def listed() -> list[Node]:
    """The same, with speakers and dates, and the first turn superseded by the last."""
    said = nodes()
    said[1] = replace(said[1], speaker="Anna", date="2023-05-01T00:00:00", superseded_by=(1, 0))
    said[4] = replace(said[4], speaker="Anna", date="2023-05-02T00:00:00")
    return said


def test_networkx_nodes_have_kinds_labels_dates_and_salience() -> None:
    graph = to_networkx(listed(), [0.0, 0.5, 0.1, 0.0, 0.9], EMBEDDING)
    kinds = [data["kind"] for _, data in graph.nodes(data=True)]
    assert (kinds.count("session"), kinds.count("event"), kinds.count("entity")) == (2, 3, 4)
    assert graph.nodes[4] == {
        "kind": "event", "label": "c", "date": "2023-05-02T00:00:00", "session": 1, "turn": 0, "turn_id": "D1:0",
        "salience": 0.9, "superseded": False,
    }  # fmt: skip
    assert graph.nodes[1]["superseded"] and graph.nodes["sarah"] == {"kind": "entity", "label": "sarah"}


def test_networkx_edges_have_kinds_and_weights() -> None:
    graph = to_networkx(listed(), [0.0] * 5, EMBEDDING)
    found = {(frozenset(map(str, (i, j))), data["kind"]): data["weight"] for i, j, data in graph.edges(data=True)}
    expected = {
        ("01", "part_of"): 0.6, ("02", "part_of"): 0.0, ("12", "next"): 0.8, ("34", "part_of"): 0.8,
        ("14", "same_entity"): 0.96, ("14", "supersedes"): 0.96,
    }  # fmt: skip
    for (pair, kind), weight in expected.items():
        assert found.pop((frozenset(pair), kind)) == pytest.approx(weight, abs=1e-6)
    ties = {
        ("1", "sarah", "mention"): 0.5, ("4", "sarah", "mention"): 0.5, ("2", "paris", "mention"): 1.0,
        ("4", "rex", "mention"): 1.0, ("1", "anna", "speaker"): 0.5, ("4", "anna", "speaker"): 0.5,
    }  # fmt: skip
    assert found == {(frozenset(key[:2]), key[2]): weight for key, weight in ties.items()}


def test_the_link_to_a_pruned_version_is_no_edge() -> None:
    said = [replace(node, superseded_by=(9, 0)) if node.turn_id == "D0:0" else node for node in nodes()]
    graph = to_networkx(said, [0.0] * 5, EMBEDDING)
    assert graph.nodes[1]["superseded"]
    assert "supersedes" not in {data["kind"] for _, _, data in graph.edges(data=True)}
