"""How fast is finding in a large memory? The shortlist against scoring every turn, and whether both find the same.

    python -m benchmarks.index --checkpoint DIR

All LOCCO users but the test ones become one conversation of some 17,000 turns, and 32 of the training users' questions are
put to it at once. Writes ``results/index.json``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.finders import remember
from benchmarks.machine import machine
from benchmarks.timing import compare
from mlmf.config.parse import run_script
from mlmf.data.tasks import UNTESTED, load_task
from mlmf.evaluation.results import write_json
from mlmf.memory import find
from mlmf.memory.keys import QueryKeys
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.paths import cache_dir
from mlmf.recall import choose
from mlmf.training.feature_cache import FeatureCache

RESULTS = Path("results/index.json")
QUESTIONS, DEPTH = 32, 10


def joined(states: Sequence[MemoryState]) -> MemoryState:
    """Memories of one conversation each as one memory, whose sessions follow each other."""
    nodes, owners, session, place = [], [], 0, 0
    for state in states:
        for node in state.nodes[0]:
            newer = node.superseded_by
            moved = None if newer is None else (newer[0] + session, newer[1])
            nodes.append(replace(node, session=node.session + session, superseded_by=moved))
        owners.append(state.owner + place)
        session, place = session + state.sessions[0], place + len(state.nodes[0])

    def along(name: str) -> torch.Tensor:
        return torch.cat([getattr(state, name) for state in states], 1)

    parts = ("values", "keys", "tokens", "embedding", "pooled", "salience")
    return replace(
        states[0],
        **{name: along(name) for name in parts},
        owner=torch.cat(owners, 1),
        nodes=(tuple(nodes),),
        sessions=(session,),
    )


@torch.no_grad()
def figures(model: MLMFModel, state: MemoryState, query: QueryKeys, repeats: int) -> dict[str, Any]:
    """Seconds for all queries with and without the shortlist, how far the best turns agree, and bytes held."""
    scorer = model.memory.scorer

    def score() -> torch.Tensor:
        return scorer(query, state).nodes

    def score_all() -> torch.Tensor:
        kept, find.SHORTLIST_FROM = find.SHORTLIST_FROM, len(state.nodes[0])
        try:
            return score()
        finally:
            find.SHORTLIST_FROM = kept

    pair = compare(score, score_all, repeats)
    short, whole = ([set(recall.chosen) for recall in choose(one, state, DEPTH)] for one in (score(), score_all()))
    shared = [len(one & other) / len(other) for one, other in zip(short, whole, strict=True)]
    return {
        "turns": sum(not node.is_session for node in state.nodes[0]),
        "questions": len(query.tokens),
        "seconds_shortlist": pair.ours,
        "seconds_all": pair.theirs,
        f"agreement@{DEPTH}": sum(shared) / len(shared),
        "key_bytes": state.keys.nbytes + state.embedding.nbytes,
        "state_bytes": state.n_bytes,
    }


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--checkpoint", type=Path, required=True, help="whose finder is timed")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    model = MLMFModel.from_pretrained(arguments.checkpoint).eval()
    features = FeatureCache(model, cache_dir())
    users = load_task("locco", split=UNTESTED).conversations
    features.fill([session for user in users for session in user.sessions])
    states = [remember(user, model, features) for user in track(users, "remembering", transient=True)]
    asked = [question.text for user in users for question in user.questions if not question.is_trap]
    texts = random.Random(0).sample(asked, QUESTIONS)
    with torch.no_grad():
        query = model.query_keys([model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts])
    table = Table("turns", "shortlist (s)", "all (s)", f"the same {DEPTH}", "keys (MB)")
    measured = []
    for count in (len(states) // 16, len(states) // 4, len(states)):
        made = figures(model, joined(states[:count]), query, arguments.repeats)
        measured.append(made)
        table.add_row(
            f"{made['turns']:,}", f"{made['seconds_shortlist']:.3f}", f"{made['seconds_all']:.3f}",
            f"{made[f'agreement@{DEPTH}']:.1%}", f"{made['key_bytes'] / 1e6:.0f}",
        )  # fmt: skip
    Console().print(table)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_json(RESULTS, {"sizes": measured, "machine": machine(), "created_at": now})
    return 0


if __name__ == "__main__":
    run_script(main)
