"""A picture of the entity-event graph (extra ``plots``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx

from mlmf.errors import UserError
from mlmf.memory.state import MemoryState

MOST_NODES = 40
_NODES = {"event": ("#4c78a8", "turn"), "session": ("#b0b0b0", "session"), "entity": ("#f2a541", "entity")}
"""Colour and name of each kind of node."""
_EDGES = {
    "next": ("-", "#4c78a8", "next turn"),
    "same_entity": ("-", "#909090", "same entity"),
    "part_of": ("--", "#909090", "part of the session"),
    "mention": (":", "#d08a20", "mentions"),
    "speaker": (":", "#909090", "says"),
    "supersedes": ("-", "#c0392b", "supersedes"),
}
"""Line, colour and name of each kind of edge."""
_WORDS = 23


def draw_graph(state: MemoryState, i: int, path: str | Path) -> Path:
    """Draw the graph of one conversation: its 40 strongest nodes; see :func:`strongest`.

    Args:
        state: the memory.
        i: the conversation.
        path: picture to write; its ending decides the format (png, pdf, svg).

    Returns:
        The path.

    Raises:
        UserError: matplotlib is not installed, or does not know the format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("drawing needs matplotlib, which is not installed: pip install 'mlmf[plots]'") from error
    path = Path(path)
    figure = Figure(figsize=(15, 10), layout="constrained")
    ending = path.suffix.lstrip(".").lower()
    if ending not in figure.canvas.get_supported_filetypes():
        raise UserError(f"cannot draw {path}: a picture ends in .png, .pdf or .svg")
    whole = state.graph(i)
    graph = strongest(whole, MOST_NODES)
    axes: Any = figure.subplots()
    axes.set_axis_off()
    axes.set_title(f"{len(graph)} strongest nodes of {len(whole)}", fontsize=10)
    _draw(graph, axes)
    partial = path.with_name(f".{path.name}.partial")
    figure.savefig(partial, format=ending, dpi=130)
    partial.replace(path)
    return path


def strongest(graph: nx.MultiGraph, most: int) -> nx.MultiGraph:
    """The part of a graph between its ``most`` nodes of highest salience, then degree.

    Sessions and entities count with the highest salience of the turns they belong to.
    """
    own = {node: data["salience"] for node, data in graph.nodes(data=True) if data["kind"] == "event"}

    def salience(node: Any) -> float:
        return own[node] if node in own else max((own[n] for n in graph[node] if n in own), default=float("-inf"))

    order = sorted(graph, key=lambda node: (-salience(node), -graph.degree(node), str(node)))
    return graph.subgraph(order[:most])


def _draw(graph: nx.MultiGraph, axes: Any) -> None:
    # by the number of steps between nodes, which spreads labels better than springs do; the same at every call
    place = nx.kamada_kawai_layout(nx.Graph(graph.edges()))
    place |= {node: (-1.0, 1.0 - 0.1 * i) for i, node in enumerate(n for n in graph if n not in place)}
    for one, other, data in graph.edges(data=True):
        line, colour, _ = _EDGES[data["kind"]]
        xs, ys = zip(place[one], place[other], strict=True)
        axes.plot(xs, ys, line, color=colour, linewidth=0.6 + max(0.0, data["weight"]), zorder=1)
    for node, data in graph.nodes(data=True):
        size = 60 if data["kind"] == "session" else 120 + 12 * graph.degree(node)
        pale = 0.35 if data.get("superseded") else 1.0
        axes.scatter(*place[node], s=size, color=_NODES[data["kind"]][0], alpha=pale, zorder=2)
        box = {"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 0.4}
        style = {"xytext": (0, 8), "textcoords": "offset points", "fontsize": 7, "ha": "center", "zorder": 3}
        axes.annotate(_label(data["label"]), place[node], bbox=box, **style)
    for colour, name in _NODES.values():
        axes.scatter([], [], color=colour, label=name)
    for line, colour, name in _EDGES.values():
        axes.plot([], [], line, color=colour, label=name)
    axes.legend(loc="lower left", fontsize=8, frameon=False)


def _label(text: str) -> str:
    """The words without the date, on two short lines at most."""
    words = text.partition("] ")[2] or text
    words = words if len(words) <= 2 * _WORDS else words[: 2 * _WORDS - 3].rstrip() + "..."
    # a $ would begin a formula
    words = words.replace("$", r"\$")
    cut = words.rfind(" ", 0, _WORDS + 1)
    return words if len(words) <= _WORDS or cut < 0 else f"{words[:cut]}\n{words[cut + 1 :]}"
