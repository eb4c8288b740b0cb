"""Event nodes: what the semantic layer knows of where its states came from, and the chains of versions they form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """Where an event node came from. ``turn`` is -1 for a session node, which holds the session's date line."""

    session: int
    turn: int
    turn_id: str
    line: str
    """The turn as a dated line: what recall shows, and what text mode puts into the prompt."""
    entities: tuple[str, ...] = ()
    """Names and things the turn mentions, lower-cased."""
    superseded_by: tuple[int, int] | None = None
    """Session and turn of the newer near-duplicate that replaced it: kept as history, no longer found."""
    speaker: str = ""
    date: str | None = None
    """When the session took place, as ISO 8601."""

    @property
    def key(self) -> tuple[int, int]:
        """Session and turn: what a link points to."""
        return self.session, self.turn

    @property
    def is_session(self) -> bool:
        """True for the node that stands for a whole session."""
        return self.turn < 0

    @property
    def superseded(self) -> bool:
        """A newer version exists or existed."""
        return self.superseded_by is not None


def versions(nodes: Sequence[Node], i: int) -> list[int]:
    """Positions of every version of what node ``i`` says, oldest first, ``i`` among them.

    Links are followed from each node to the newest version they lead to; nodes that lead to the same one are versions
    of each other. A link to a node that was pruned ends there, and still ties together what points to it.
    """
    # a link leads to what was said later, so that following links comes to an end
    links = {n.key: n.superseded_by for n in nodes if n.superseded_by is not None and n.superseded_by > n.key}

    def newest(key: tuple[int, int]) -> tuple[int, int]:
        while (after := links.get(key)) is not None:
            key = after
        return key

    wanted = newest(nodes[i].key)
    return [position for position, node in enumerate(nodes) if newest(node.key) == wanted]


def chains(nodes: Sequence[Node]) -> list[list[int]]:
    """Every set of two or more versions that are still there, each oldest first."""
    found: list[list[int]] = []
    for i, node in enumerate(nodes):
        if node.superseded and not any(i in chain for chain in found):
            found.append(versions(nodes, i))
    return [chain for chain in found if len(chain) > 1]
