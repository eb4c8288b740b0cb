"""Cognis's benchmarks run and write what they promise; their figures are for ``make cognis-benchmark``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cognis_ablation, cognis_scale
from benchmarks.hashing import HashingEncoder
from mlmf.errors import UserError
from tests.retrieval.tiny_encoder import save_tiny_encoder


@pytest.fixture(autouse=True)
def quiet() -> object:
    level = logging.getLogger("mlmf").level
    yield
    logging.getLogger("mlmf").setLevel(level)


def call(monkeypatch: pytest.MonkeyPatch, module: object, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    return int(module.main())  # type: ignore[attr-defined]


def test_texts_that_share_words_are_near_in_every_process() -> None:
    cat, cats, rain, empty = HashingEncoder(64).encode_documents(["a grey cat", "the grey cat", "rain in May", ""])
    assert cat @ cats > 0.5 > abs(cat @ rain)
    assert np.linalg.norm(cat) == pytest.approx(1) and not empty.any()
    np.testing.assert_array_equal(HashingEncoder(64).encode_queries(["a grey cat"])[0], cat)


def test_a_memory_grows_through_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cognis_scale, "texts_per_second", lambda name: 1.0)
    file = tmp_path / "out.json"
    options = ("--sizes", "40", "100", "--queries", "8", "--users", "3", "--output", str(file))
    assert call(monkeypatch, cognis_scale, *options) == 0
    written = json.loads(file.read_text())
    assert [row["entries"] >= size for row, size in zip(written["sizes"], (40, 100), strict=True)] == [True, True]
    first, second = written["sizes"]
    assert second["file_mb"] >= first["file_mb"] > 0
    for row in written["sizes"]:
        assert row["query_ms"]["total"]["p50"] <= row["query_ms"]["total"]["p99"]
        assert row["ingest_entries_per_second"] > 0
    assert written["opening_ms"]["users"] == 3 and written["encoder"] == "hashing"


def test_sizes_must_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--sizes must rise, from 20 up, got \[100, 40\]"):
        call(monkeypatch, cognis_scale, "--sizes", "100", "40")


def test_every_stage_and_weight_has_its_recall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cognis_ablation, "STAGES", ("versions",))
    monkeypatch.setattr(cognis_ablation, "WEIGHTS", (0.0,))
    encoder, file = save_tiny_encoder(tmp_path / "encoder"), tmp_path / "out.json"
    user = cognis_ablation.load_task("locco").conversations[0].id
    options = ("--tasks", "locco", "--conversations", user, "--encoder", str(encoder), "--base_model", "tiny-random")
    assert call(monkeypatch, cognis_ablation, *options, "--window_tokens", "2000", "--output", str(file)) == 0
    recall = json.loads(file.read_text())["recall"]["locco"]
    changed = {"cognis without versions", "cognis without entities", "cognis, vectors 0%, BM25 100%"}
    assert set(recall) == {"bm25", "hybrid", "cognis", *changed}
    assert {row["n"] for row in recall.values()} == {18}
    assert recall["cognis, vectors 0%, BM25 100%"]["recall"] > 0.5
    with pytest.raises(UserError, match="task locco: no question whose evidence is known"):
        call(monkeypatch, cognis_ablation, "--tasks", "locco", "--conversations", "x", *options[4:])
