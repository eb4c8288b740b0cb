from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import torch

from benchmarks.index import figures, joined
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.types import Session, Turn


def remembered(model: MLMFModel, name: str, days: int) -> MemoryState:
    state = model.init_state()
    for day in range(days):
        turns = (Turn(f"{day}:0", name, f"thing {day} of {name} is blue"), Turn(f"{day}:1", "Ben", f"fine {name}"))
        state = model.remember([Session(day, datetime(2023, 5, day + 1), turns)], state)
    return state


def test_memories_joined_hold_what_each_held_one_after_the_other() -> None:
    model = MLMFModel.from_base("tiny-random", MLMFConfig(lora=LoraSettings(r=0)))
    anna, carl = remembered(model, "Anna", 3), remembered(model, "Carl", 2)
    moved = replace(anna.nodes[0][1], superseded_by=(2, 0))
    anna = replace(anna, nodes=((anna.nodes[0][0], moved, *anna.nodes[0][2:]),))
    both = joined([carl, anna])
    assert [node.line for node in both.nodes[0]] == [node.line for one in (carl, anna) for node in one.nodes[0]]
    assert [node.session for node in both.nodes[0]] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert both.nodes[0][7].superseded_by == (4, 0)
    held = [both.nodes[0][owner].line for owner in both.owner[0].tolist()]
    assert held == [one.nodes[0][owner].line for one in (carl, anna) for owner in one.owner[0].tolist()]
    query = model.query_keys([[5, 6, 7], [8, 9]])
    made = figures(model, both, query, repeats=1)
    assert (made["turns"], made["questions"], made["agreement@10"]) == (10, 2, 1.0)
    assert made["key_bytes"] == both.keys.nbytes + both.embedding.nbytes
    assert torch.isfinite(model.memory.scorer(query, both).nodes).any()
