"""Variants of a system are asked the same questions; what a file lists is what is measured."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import variants
from benchmarks.hashing import HashingEncoder
from benchmarks.variants import Remembered, Row, VariantsConfig, figures
from mlmf.errors import UserError
from tests.retrieval.tiny_encoder import save_tiny_encoder


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level = logging.getLogger("mlmf").level
    yield
    logging.getLogger("mlmf").setLevel(level)


FACTS = ("My cat is called Miso.", "We moved to Oslo.", "I bought a violin.", "Rain again today.", "Her dog is old.")


def conversation() -> str:
    """Ten sessions, the first five of which hold the answer of a question each."""
    said = [*FACTS, *["Nothing new, just a long day at work and a good dinner."] * 5]
    sessions = [
        {"date": f"2023-05-{day:02}", "turns": [{"speaker": "Anna", "text": text, "id": f"t{day}"}]}
        for day, text in enumerate(said, start=1)
    ]
    questions = [
        {"question": f"What about {text.split()[-1]}", "answer": text, "evidence": [f"t{day}"]}
        for day, text in enumerate(FACTS, start=1)
    ]
    return json.dumps({"id": "anna", "sessions": sessions, "questions": questions})


def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str, *options: str) -> dict[str, dict[str, float]]:
    encoder, file = save_tiny_encoder(tmp_path / "encoder"), tmp_path / "out.json"
    config, data = tmp_path / "config.yaml", tmp_path / "data.jsonl"
    data.write_text(conversation())
    config.write_text(
        settings + f"\noutput: {file}\nevaluation: {{tasks: jsonl, data_file: {data}, encoder: {encoder}, "
        "base_model: tiny-random, system: bm25, max_new_tokens: 2, window_tokens: 150}"
    )
    monkeypatch.setattr(sys, "argv", ["variants", "--config", str(config), *options])
    assert variants.main() == 0
    written: dict[str, dict[str, float]] = json.loads(file.read_text())["tasks"]["jsonl"]
    return written


def test_the_search_of_each_variant_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "variant_of: cognis\nvariants: {words: {cognis.vector_weight: 0.0}, vectors: {cognis.use_words: false}}"
    found = call(monkeypatch, tmp_path, listed)
    assert list(found) == ["bm25", "words", "vectors"]
    assert all(row["n"] == 5 and "f1" not in row for row in found.values())
    assert found["words"]["recall"] == found["bm25"]["recall"] == 1.0 > found["vectors"]["recall"]


def test_answers_are_scored_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = "{cogmem.long_term: false, cogmem.direct_access: false, cogmem.focus_of_attention: false}"
    listed = f"variant_of: cogmem\nanswers: true\nvariants: {{baseline: {baseline}, all: {{}}}}"
    found = call(monkeypatch, tmp_path, listed, "--evaluation.limit", "3")
    assert all(row["n"] == 3 and 0 <= row["f1"] <= 1 for row in found.values())
    assert found["baseline"]["recall"] == 0.0 < found["all"]["recall"]


def test_figures_are_means_over_the_questions() -> None:
    found = figures([Row("a", 1.0, 0.5), Row("a", 0.5, 0.0), Row("b", 0.0, 0.1)], answers=True)
    assert (found["n"], found["recall"], found["f1"]) == (3, 0.5, pytest.approx(0.2))
    low, high = found["recall_interval"]
    assert low <= 0.5 <= high


def test_an_encoder_that_remembers_gives_what_the_encoder_gives() -> None:
    plain, remembered = HashingEncoder(16), Remembered(HashingEncoder(16))
    for texts in (["a cat", "rain"], ["rain", "a dog", "rain"]):
        np.testing.assert_array_equal(remembered.encode_documents(texts), plain.encode_documents(texts))
        np.testing.assert_array_equal(remembered.encode_queries(texts), plain.encode_queries(texts))


def test_variants_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(UserError, match=r"Did you mean 'cognis\.vector_weight'"):
        VariantsConfig(variants={"x": {"cognis.vector_wait": 0.5}})
    with pytest.raises(UserError, match=r"cognis\.vector_weight must be in \[0, 1\], got 7"):
        VariantsConfig(variants={"x": {"cognis.vector_weight": 7.0}})
