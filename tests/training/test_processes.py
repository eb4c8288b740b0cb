"""Two processes are one: the same examples, losses and weights, at the same number of examples a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "train" / "smoke.yaml"


OF_A_BATCH = {"nodes/spread", "nodes/count"}
"""Watched and not trained on: a mean over the nodes of a batch, which depends on how a step's examples are split."""


def train(launcher: list[str], cache: Path, output: Path, *options: str) -> str:
    """Run ``train.py`` on CPUs as people do, six steps; returns what it printed."""
    command = [sys.executable, *launcher, str(ROOT / "train.py"), "--config", str(CONFIG), "--output_dir", str(output)]
    command += ["--logging_steps", "1", "--save_steps", "0", *options]
    environment = {"CUDA_VISIBLE_DEVICES": "", "MLMF_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout + run.stderr


def metrics(output: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_two_processes_are_one_process(tmp_path: Path) -> None:
    cache, one, two = tmp_path / "cache", tmp_path / "one", tmp_path / "two"
    # half of the steps in text mode
    shown = ("--shown_share", "0.5", "--shown_tokens", "64")
    train([], cache, one, "--per_device_train_batch_size", "4", *shown)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    printed = train(launcher, cache, two, "--per_device_train_batch_size", "2", *shown)
    facts = json.loads((two / "final" / "config.json").read_text(encoding="utf-8"))["training"]
    assert facts["processes"] == 2, "only one process took part: nothing was compared"
    assert printed.count("step 6/6") == 1, "each process wrote its own log"

    assert len(metrics(one)) == len(metrics(two)) == 6
    for alone, together in zip(metrics(one), metrics(two), strict=True):
        for name in alone.keys() - {"perf/tokens_per_s"} - OF_A_BATCH:
            assert together[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-5), (alone["step"], name)
    for file in ("memory.safetensors", "adapter/adapter_model.safetensors"):
        ours, theirs = load_file(two / "final" / file), load_file(one / "final" / file)
        assert ours.keys() == theirs.keys()
        for name, weight in theirs.items():
            torch.testing.assert_close(ours[name], weight, rtol=1e-3, atol=1e-5, msg=f"{file}: {name}")


@pytest.mark.slow
def test_a_launch_that_starts_one_process_only_says_so(tmp_path: Path) -> None:
    """``accelerate launch --cpu`` without MPI runs a single process whatever it is asked for."""
    launcher = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    printed = train(launcher, tmp_path / "cache", tmp_path / "one", "--max_steps", "1", "--conversations", "4")
    assert "started one process" in printed
