"""The speed benchmark runs and writes what it promises; its figures are for ``make bench``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.timing import compare

ROOT = Path(__file__).parents[2]


def test_both_sides_are_timed_in_turn_and_warmed_up() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.02)

    pair = compare(lambda: calls.append("fast"), slow, repeats=3)
    assert calls == ["slow", "fast", "fast", "slow", "slow", "fast", "fast", "slow"]
    assert pair.theirs >= 0.02 and pair.speedup > 5
    assert pair.cost == pytest.approx(1 / pair.speedup)


@pytest.mark.slow
def test_the_file_has_every_promised_key(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks.bench", "--base_model", "tiny-random", "--repeats", "1"]
    run = subprocess.run([*command, "--output", str(output)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    figures = json.loads(output.read_text(encoding="utf-8"))
    promised = {"encode_ratio", "decode_ratio", "train_ratio", "state_bytes", "batch_encode_ratio"}
    assert promised <= figures.keys()
    assert "answer_speedup_vs_full_context" in (figures.keys() | figures["skipped"].keys())
    assert figures["machine"]["threads"] >= 1 and figures["dtype"] == "float32"
    for name in promised:
        assert figures[name] > 0 and name in figures["definitions"]
    seconds = figures["median_seconds"]["encode"]
    assert figures["encode_ratio"] == pytest.approx(seconds["theirs"] / seconds["ours"])
    # full layers are the bound of every conversation
    assert figures["state_bytes"] <= figures["state_bytes_full"]
