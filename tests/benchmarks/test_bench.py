"""The speed benchmark runs and writes what it promises; its figures are for ``make bench``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.bench import full_bytes
from benchmarks.timing import compare
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.model import MLMFModel

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


def test_a_full_memory_is_one_that_more_sessions_no_longer_make_larger() -> None:
    model = MLMFModel.from_base("tiny-random", MLMFConfig(c_s=12, node_tokens=4, lora=LoraSettings(r=0)))
    conversations = load_task("locco", split="test").conversations[:2]
    size = full_bytes(model, conversations, patience=4)
    state = model.init_state()
    for session in conversations[0].sessions:
        state = model.remember([session], state)
    assert state.n_bytes <= size
    with pytest.raises(UserError, match="still grows"):
        full_bytes(model, conversations[:1], patience=1000)


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
    assert figures["decode_ratio_unmerged"] > 0 and figures["merged_bytes"] > 0
    assert figures["batch_encode_ratio_long"] > 0
