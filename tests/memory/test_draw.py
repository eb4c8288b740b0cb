from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from mlmf.errors import UserError
from mlmf.memory.draw import MOST_NODES, draw_graph, strongest
from mlmf.memory.state import MemoryState

ROW = [(s, t, 1) for s in range(30) for t in (-1, 0, 1)]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_written_whole(toy_state: Callable[..., MemoryState], tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    file = tmp_path / f"graph.{ending}"
    assert draw_graph(toy_state([ROW]), 0, file) == file
    head = file.read_bytes()[:8]
    assert head == b"\x89PNG\r\n\x1a\n" if ending == "png" else head.startswith(b"<?xml")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_empty_memory_can_be_drawn(
    make_memory: Callable[..., Any], empty: Callable[..., MemoryState], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    assert draw_graph(empty(make_memory()), 0, tmp_path / "empty.png").stat().st_size > 0


def test_only_the_strongest_are_drawn(toy_state: Callable[..., MemoryState]) -> None:
    graph = toy_state([ROW]).graph()
    part = strongest(graph, MOST_NODES)
    assert len(part) == MOST_NODES
    turns = {node: data["salience"] for node, data in graph.nodes(data=True) if data["kind"] == "event"}
    weakest = min(turns[node] for node in part if node in turns)
    assert all(value <= weakest for node, value in turns.items() if node not in part)
    # a session comes with its best turn
    best = max(turns, key=lambda node: turns[node])
    session = next(node for node in graph[best] if graph.nodes[node]["kind"] == "session")
    assert set(strongest(graph, 2)) == {best, session}
    assert strongest(nx.MultiGraph(), 5).number_of_nodes() == 0


def test_an_unknown_format_is_refused(toy_state: Callable[..., MemoryState], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    with pytest.raises(UserError, match=r"graph\.docx: a picture ends in"):
        draw_graph(toy_state([ROW]), 0, tmp_path / "graph.docx")
    assert not list(tmp_path.iterdir())


def test_matplotlib_missing_is_said_with_the_way_out(
    toy_state: Callable[..., MemoryState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'mlmf\[plots\]'"):
        draw_graph(toy_state([ROW]), 0, tmp_path / "graph.png")
