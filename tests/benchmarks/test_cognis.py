"""Cognis's benchmarks run and write what they promise; their figures are for ``make cognis-benchmark``."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cognis_scale
from benchmarks.hashing import HashingEncoder
from mlmf.errors import UserError


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
