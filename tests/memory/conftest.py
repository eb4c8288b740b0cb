from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
import torch
import torch.nn.functional as F

from mlmf.config.model import MLMFConfig
from mlmf.memory.features import SessionFeatures
from mlmf.memory.host import decoder_layers, host_attention
from mlmf.memory.multilayer import MultiLayerMemory
from mlmf.memory.state import MemoryState, Node
from mlmf.tiny import tiny_model
from mlmf.types import Session, Turn


@pytest.fixture(scope="session")
def make_session() -> Callable[..., Session]:
    """``make_session(index, "text", ...)``: turns of two speakers on a day of May 2023."""

    def make(index: int, *texts: str) -> Session:
        turns = (Turn(f"D{index}:{i}", ("Anna", "Ben")[i % 2], text) for i, text in enumerate(texts))
        return Session(index, datetime(2023, 5, index + 1), tuple(turns))

    return make


@pytest.fixture(scope="session")
def make_features() -> Callable[..., SessionFeatures]:
    """Random features of a session: three tokens of date line and ``length`` for each turn."""

    def make(session: Session, seed: int, length: int = 4, width: int = 64, code: int = 20) -> SessionFeatures:
        generator = torch.Generator().manual_seed(seed)
        pieces = torch.tensor([0] * 3 + [i + 1 for i in range(len(session.turns)) for _ in range(length)])
        n = len(pieces)
        return SessionFeatures(
            torch.randn(n, code, generator=generator),
            torch.randn(n, width, generator=generator),
            torch.randint(3, 60, (n,), generator=generator),
            pieces,
        )

    return make


@pytest.fixture(scope="session")
def make_memory() -> Callable[..., MultiLayerMemory]:
    """Memory for the tiny Llama, fused at layers 1 and 2; keyword arguments are settings."""
    lm = tiny_model("llama")
    layers = decoder_layers(lm)

    def make(**settings: object) -> MultiLayerMemory:
        torch.manual_seed(0)
        config = MLMFConfig(**{"key_dim": 16, "code_dim": 20, **settings})  # type: ignore[arg-type]
        return MultiLayerMemory(config, [host_attention(layers[i], lm) for i in (1, 2)], 64, 256).eval()

    return make


@pytest.fixture(scope="session")
def empty() -> Callable[..., MemoryState]:
    """``empty(memory, batch_size)``: a fresh state on the CPU in float32."""

    def make(memory: MultiLayerMemory, batch_size: int = 1) -> MemoryState:
        return memory.init_state(batch_size, "tiny", torch.device("cpu"), torch.float32)

    return make


@pytest.fixture(scope="session")
def toy_state() -> Callable[..., MemoryState]:
    """``toy_state(rows)``: random semantic banks. A row is a list of (session, turn, number of tokens)."""

    def make(rows: Sequence[Sequence[tuple[int, int, int]]], seed: int = 0, key_dim: int = 8) -> MemoryState:
        torch.manual_seed(seed)
        made = []
        for row in rows:
            owner = torch.tensor([i for i, (_, _, n) in enumerate(row) for _ in range(n)])
            m, n = len(owner), len(row)
            made.append(
                MemoryState(
                    working=torch.randn(1, 3, 6),
                    working_mask=torch.ones(1, 3, dtype=torch.bool),
                    episodic=torch.randn(1, 2, 6),
                    episodic_mask=torch.ones(1, 2, dtype=torch.bool),
                    values=torch.randn(1, m, 6),
                    keys=F.normalize(torch.randn(1, m, key_dim), dim=-1),
                    tokens=torch.randint(3, 12, (1, m)),
                    owner=owner[None],
                    embedding=F.normalize(torch.randn(1, n, key_dim), dim=-1),
                    pooled=F.normalize(torch.randn(1, n, key_dim), dim=-1),
                    salience=torch.randn(1, n),
                    nodes=(tuple(Node(s, t, "" if t < 0 else f"D{s}:{t}", f"line {s}.{t}") for s, t, _ in row),),
                    sessions=(len({s for s, _, _ in row}),),
                    latest=(max(s for s, _, _ in row),),
                    fingerprint="toy",
                )
            )
        return MemoryState.cat(made)

    return make
