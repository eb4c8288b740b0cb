from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import pytest
import torch

from mlmf.errors import UserError
from mlmf.memory.state import MemoryState

ROW = [(0, -1, 1), (0, 0, 3), (1, -1, 1), (1, 0, 4), (1, 1, 2)]


@pytest.fixture
def state(toy_state: Callable[..., MemoryState]) -> MemoryState:
    made = toy_state([[(0, -1, 2)], ROW])
    nodes = list(made.nodes[1])
    nodes[1] = replace(nodes[1], line="[1 May 2023] Anna: I live in Oslo", superseded_by=(1, 1), entities=("oslo",))
    nodes[4] = replace(nodes[4], line="[2 May 2023] Anna: I live in Rome " + "and more " * 20, speaker="Anna")
    salience = torch.tensor([[0.0] * 5, [9.0, 0.25, 9.0, -0.5, 1.5]])
    return replace(made, nodes=(made.nodes[0], tuple(nodes)), salience=salience, latest=(-1, 1))


def test_description_of_a_conversation(state: MemoryState) -> None:
    one = state.split()[1]
    text = state.describe(1)
    assert text == one.describe()
    lines = text.splitlines()
    assert lines[0] == f"2 sessions remembered, {one.n_bytes / 1e6:.2f} MB"
    assert lines[1] == "working   3 / 3 slots: the end of session 1"
    assert lines[2] == "episodic  2 / 2 slots"
    assert lines[3] == "semantic  5 nodes: 3 turns of 2 sessions, 11 token slots, 1 superseded"
    # turns by salience; date lines, which are kept for their turns, are not among them
    assert [line.split()[0] for line in lines[5:8]] == ["+1.50", "+0.25", "-0.50"]
    assert max(map(len, lines)) < 120 and lines[5].endswith("...")
    assert lines[8] == "1 version chains, newest last:"
    assert lines[9].strip().startswith("[1 May 2023] Anna: I live in Oslo")
    assert lines[10].strip().startswith("-> [2 May 2023] Anna: I live in Rome")


def test_capacity_is_shown_where_it_is_given(state: MemoryState) -> None:
    assert "semantic  5 / 64 nodes" in state.describe(1, c_s=64)
    assert "sessions, 11 / 80 token slots" in state.describe(1, c_m=80)


def test_description_of_nothing(make_memory: Callable[..., object], empty: Callable[..., MemoryState]) -> None:
    text = empty(make_memory(c_w=4, c_e=8)).describe()
    assert "0 sessions" in text and "working   0 / 4 slots: nothing" in text and "semantic  0 nodes" in text
    assert "strongest" not in text and "chains" not in text


def test_graph_of_a_conversation_goes_through_json(state: MemoryState) -> None:
    graph = state.graph(1)
    assert graph.nodes[4]["salience"] == 1.5 and graph.nodes["oslo"]["kind"] == "entity"
    assert graph.has_edge(1, 4) and not graph.has_edge("anna", 1)
    read = nx.node_link_graph(json.loads(json.dumps(state.graph_json(1))), edges="edges")
    assert nx.utils.graphs_equal(read, graph)
    weights = [data["weight"] for _, _, data in graph.edges(data=True) if data["kind"] == "next"]
    expected = float(state.embedding[1, 3] @ state.embedding[1, 4])
    assert weights == pytest.approx([expected], abs=1e-6)


def test_a_state_in_bfloat16_has_a_graph(state: MemoryState) -> None:
    rounded = state._map(lambda t: t.bfloat16() if t.is_floating_point() else t)
    assert json.dumps(rounded.graph_json(1)) and rounded.describe(1)


@pytest.mark.parametrize("i", [2, -1])
def test_a_conversation_that_is_not_there(state: MemoryState, i: int) -> None:
    for ask in (state.describe, state.graph, state.graph_json):
        with pytest.raises(UserError, match=f"no conversation {i} in a state of 2"):
            ask(i)
