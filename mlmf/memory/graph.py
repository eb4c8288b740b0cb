"""The entity-event graph: who and what a turn mentions, and which event nodes hang together (alg. 12-13).

Event nodes are turns and sessions. Entities live on the event nodes that mention them; two events are neighbours where
they follow each other (``next``), belong to the same session (``part_of``) or mention the same entity (``same_entity``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import networkx as nx

from mlmf.memory.state import Node

# capitalised words that open sentences or fill dialogue without naming anything
_COMMON = frozenset(
    """a absolutely actually after ah all also always am an and any are as at aw awesome been but by bye can could
    definitely did do does exactly for from glad good great had has have he hello her hey hi his how i if im in indeed
    is it its ive just keep let lets like maybe me my nice no not now of oh ok okay on one or our please really right
    she so some sometimes sounds still sure thank thanks that thats the their them then there these they this those to
    today tomorrow too very was we well were what when where which who why will wish with wow would yeah yes yesterday
    yet you your""".split()  # noqa: SIM905 (a list of a hundred strings reads worse)
)
_NAME = r"[A-Z][\w'&-]*"
_SPAN = re.compile(rf"\b{_NAME}(?:\s+(?:(?:of|the|de)\s+)*{_NAME})*")
_QUOTED = re.compile(r'"([^"]{2,60})"')
_PLAIN_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
# an entity that half the turns mention ties nothing together: its edges would join everything to everything
_MAX_DEGREE = 32


@lru_cache(maxsize=65536)
def entities(text: str) -> tuple[str, ...]:
    """Names and quoted titles in an English text, lower-cased, without repeats.

    >>> entities('We saw "Blue Velvet" at The Indie Pulse with Sarah.')
    ('blue velvet', 'the indie pulse', 'sarah')
    """
    text = text.translate(_PLAIN_QUOTES)
    found = _QUOTED.findall(text)
    for match in _SPAN.finditer(_QUOTED.sub(" ", text)):
        words = match.group().split()
        while words and words[0].split("'")[0].lower() in _COMMON and (len(words) == 1 or words[0] != "The"):
            words.pop(0)
        if words:
            found.append(" ".join(words))
    return tuple(dict.fromkeys(name.strip("' ").removesuffix("'s").lower() for name in found))


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


def to_networkx(nodes: Sequence[Node], salience: Sequence[float]) -> nx.MultiGraph:
    """One conversation's graph for people: event and entity nodes, labelled, with ``mention`` edges."""
    graph = nx.MultiGraph()
    for i, node in enumerate(nodes):
        kind = "session" if node.is_session else "event"
        graph.add_node(
            i, kind=kind, label=node.line, session=node.session, turn=node.turn, turn_id=node.turn_id,
            salience=float(salience[i]), superseded=node.superseded,
        )  # fmt: skip
        for name in node.entities:
            graph.add_node(name, kind="entity", label=name)
            graph.add_edge(i, name, kind="mention")
    graph.add_edges_from((i, j, {"kind": kind}) for i, j, kind in edges(nodes))
    return graph
