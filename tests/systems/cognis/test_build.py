"""Settings become a memory with the models they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.config.cognis import CognisSettings
from mlmf.config.evaluation import EvalConfig
from mlmf.errors import UserError
from mlmf.systems.build import Shared, build_system, system_settings
from mlmf.systems.cognis.build import build_cognis
from mlmf.systems.cognis.system import CognisSystem
from mlmf.types import Query
from tests.retrieval.test_rerank import save_cross_encoder
from tests.systems.cognis.conftest import ENCODER, said


def test_a_local_model_that_writes_nonsense_costs_no_message() -> None:
    shared = Shared(EvalConfig(base_model="tiny-random", cognis=CognisSettings(extractor="llm", llm_tokens=8)))
    shared.encoder = ENCODER  # type: ignore[assignment]
    system = build_system("cognis", shared)
    assert isinstance(system, CognisSystem)
    system.observe(said(0, "We adopted a grey cat."))
    assert system.answer([Query("grey cat")])[0].recalled == ("S0:0",)


def test_a_cross_encoder_takes_part(tmp_path: Path) -> None:
    memory = build_cognis(
        CognisSettings(reranker=save_cross_encoder(tmp_path)), ENCODER, encoder_name="hashing", device="cpu"
    )
    memory.add("anna", said(0, "We adopted a grey cat.", "The dog likes long walks."))
    assert len(memory.search("anna", [Query("grey cat")], 5)[0]) == 2
    assert len(memory.times.seconds["rerank"]) == 1
    memory.close()
    with pytest.raises(UserError, match="reranker"):
        build_cognis(CognisSettings(reranker="not/there"), ENCODER, encoder_name="hashing")


def test_results_are_stored_under_what_may_change_an_answer(tmp_path: Path) -> None:
    plain = system_settings("cognis", EvalConfig())
    kept = CognisSettings(documents=str(tmp_path / "store.db"), vectors=str(tmp_path / "vectors.db"))
    assert system_settings("cognis", EvalConfig(cognis=kept)) == plain
    assert system_settings("cognis", EvalConfig(cognis=CognisSettings(vector_weight=0.5))) != plain
    assert system_settings("cognis", EvalConfig(neighbours=1)) != plain
    assert plain["cognis"]["llm"] is None
