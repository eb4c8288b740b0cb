"""The entity-event graph: which event nodes hang together (alg. 12-13), and the graph as people look at it.

Event nodes are turns and sessions. Entities live on the event nodes that mention them; two events are neighbours where
they follow each other (``next``), belong to the same session (``part_of``) or mention the same entity (``same_entity``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from mlmf.memory.nodes import Node

# an entity that half the turns mention ties nothing together: its edges would join everything to everything
_MAX_DEGREE = 32


def edges(nodes: Sequence[Node]) -> list[tuple[int, int, str]]:
    """Undirected edges between event nodes, as ``(i, j, kind)`` with ``i < j``."""
    found: list[tuple[int, int, str]] = []
    header: dict[int, int] = {}
    previous: dict[int, int] = {}
    mentions: dict[str, list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        if node.is_session:
            header[node.session] = i
            continue
        if node.session in header:
            found.append((header[node.session], i, "part_of"))
        if node.session in previous:
            found.append((previous[node.session], i, "next"))
        previous[node.session] = i
        for name in node.entities:
            mentions[name].append(i)
    for members in mentions.values():
        if len(members) <= _MAX_DEGREE:
            found += [(i, j, "same_entity") for a, i in enumerate(members) for j in members[a + 1 :]]
    return found


def degrees(nodes: Sequence[Node]) -> list[int]:
    """How many edges end at each event node."""
    count = Counter(end for i, j, _ in edges(nodes) for end in (i, j))
    return [count[i] for i in range(len(nodes))]


def to_networkx(nodes: Sequence[Node], salience: Sequence[float], embedding: NDArray[np.float32]) -> nx.MultiGraph:
    """One conversation's graph for people.

    Event and session nodes are numbered as in ``nodes``, entity nodes go by their name. Every node has ``kind`` and
    ``label``, every event its ``date`` (ISO 8601 or None) and ``salience``, every edge ``kind`` and ``weight``. Edges
    between events are those of :func:`edges` and ``supersedes``, weighted by the cosine of the two embeddings; an edge
    between a turn and what it mentions (``mention``) or who says it (``speaker``) by ``1 / n``, ``n`` being the turns
    so tied to the entity.

    Args:
        nodes: the conversation's event nodes.
        salience: of each node.
        embedding: of each node, unit length, ``(N, K)``.
    """
    graph = nx.MultiGraph()
    ties: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, node in enumerate(nodes):
        graph.add_node(
            i, kind="session" if node.is_session else "event", label=node.line, date=node.date, session=node.session,
            turn=node.turn, turn_id=node.turn_id, salience=float(salience[i]), superseded=node.superseded,
        )  # fmt: skip
        for name in node.entities:
            ties[name, "mention"].append(i)
        if node.speaker:
            ties[node.speaker.lower(), "speaker"].append(i)
    place = {node.key: i for i, node in enumerate(nodes)}
    links = [(place.get(node.superseded_by), i) for i, node in enumerate(nodes) if node.superseded_by is not None]
    listed = edges(nodes) + [(newer, i, "supersedes") for newer, i in links if newer is not None]
    graph.add_edges_from((i, j, {"kind": kind, "weight": float(embedding[i] @ embedding[j])}) for i, j, kind in listed)
    for (name, kind), members in ties.items():
        graph.add_node(name, kind="entity", label=name)
        graph.add_edges_from((i, name, {"kind": kind, "weight": 1 / len(members)}) for i in members)
    return graph
