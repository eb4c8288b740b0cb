"""What a conversation's memory holds, in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlmf.memory.graph import degrees
from mlmf.memory.nodes import chains

if TYPE_CHECKING:
    from mlmf.memory.state import MemoryState

STRONGEST, CHAINS, VERSIONS = 5, 3, 3
"""The most turns, version chains, and versions of a chain that are shown."""
_WIDTH = 100


def describe(state: MemoryState, c_s: int | None = None, c_m: int | None = None) -> str:
    """Layers, fill, size, strongest turns and version chains of one conversation.

    Args:
        state: of a single conversation, without padding.
        c_s: capacity of the semantic layer in event nodes, which a state does not know; shown where it is given.
        c_m: the same in token slots.
    """
    nodes = state.nodes[0]
    turns = [i for i, node in enumerate(nodes) if not node.is_session]
    remembered = f"{state.sessions[0]} sessions remembered, {state.n_bytes / 1e6:.2f} MB"
    latest = "nothing" if state.latest[0] < 0 else f"the end of session {state.latest[0]}"
    most_nodes, most_slots = ("" if capacity is None else f" / {capacity}" for capacity in (c_s, c_m))
    superseded = sum(node.superseded for node in nodes)
    lines = [
        remembered,
        f"working   {int(state.working_mask.sum())} / {state.working.shape[1]} slots: {latest}",
        f"episodic  {int(state.episodic_mask.sum())} / {state.episodic.shape[1]} slots",
        f"semantic  {len(nodes)}{most_nodes} nodes: {len(turns)} turns of {len({n.session for n in nodes})} sessions, "
        f"{int(state.semantic_mask.sum())}{most_slots} token slots, {superseded} superseded",
    ]
    degree, salience = degrees(nodes), state.salience[0].tolist()
    strongest = sorted(turns, key=lambda i: (-salience[i], -degree[i], -i))[:STRONGEST]
    if strongest:
        lines.append("strongest turns by salience, then degree:")
        lines += [f"  {salience[i]:+.2f} {degree[i]:3d}  {_short(nodes[i].line)}" for i in strongest]
    found = chains(nodes)
    if found:
        lines.append(f"{len(found)} version chains, newest last:")
        for chain in found[:CHAINS]:
            older = [f"({len(chain) - VERSIONS} older)"] if len(chain) > VERSIONS else []
            lines.append("  " + "\n    -> ".join(older + [_short(nodes[i].line) for i in chain[-VERSIONS:]]))
    return "\n".join(lines)


def _short(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3].rstrip() + "..."
