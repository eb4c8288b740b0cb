"""The GPU recipes as they are, on a tiny model of the same architecture, in one process and in two."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from safetensors.torch import load_file

from mlmf.architectures import architecture
from mlmf.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).parents[2]
RECIPES = ("smollm2_1.7b", "qwen3_4b", "llama3.1_8b")
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


def train(folder: Path, recipe: str, output: str, launcher: list[str], *options: str) -> tuple[Path, str]:
    """Two steps of a recipe on CPUs with a few examples; returns the final checkpoint and what was printed."""
    file = ROOT / "configs" / "train" / f"{recipe}.yaml"
    base = folder / "base"
    if not base.exists():
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        model_type = architecture(settings["model"]["base_model"]).model_type
        tiny_model(model_type).save_pretrained(base)
        tiny_tokenizer().save_pretrained(base)
    command = [sys.executable, *launcher, str(ROOT / "train.py"), "--config", str(file), "--max_steps", "2"]
    command += ["--output_dir", str(folder / output), "--model.base_model", str(base), "--conversations", "4", "5"]
    command += ["--logging_steps", "1", "--objectives", "answer", *options]
    environment = {"CUDA_VISIBLE_DEVICES": "", "MLMF_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return folder / output / "final", run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_the_same_sharded_over_two_processes(recipe: str, tmp_path: Path) -> None:
    rows = ["--gradient_accumulation_steps", "2", "--per_device_train_batch_size"]
    alone, _ = train(tmp_path, recipe, "alone", [], *rows, "4", "--shard_base", "false")
    two, printed = train(tmp_path, recipe, "two", TWO, *rows, "2", "--shard_base", "true")
    facts = json.loads((two / "config.json").read_text(encoding="utf-8"))["training"]
    assert facts["processes"] == 2
    here, whole = map(float, re.findall(r"over 2 processes: ([\d.]+) M of its ([\d.]+) M frozen", printed)[0])
    assert here == pytest.approx(whole / 2, rel=0.3)  # numbers of one decimal
    for file in ("memory.safetensors", "adapter/adapter_model.safetensors"):
        ours, theirs = load_file(two / file), load_file(alone / file)
        assert ours.keys() == theirs.keys()
        for name, weight in theirs.items():
            # bfloat16 where the CPU computes in it
            torch.testing.assert_close(ours[name].float(), weight.float(), rtol=2e-2, atol=2e-3, msg=f"{file}: {name}")


@pytest.mark.parametrize("file", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=lambda file: file.stem)
def test_accelerate_accepts_its_files(file: Path) -> None:
    config = load_config_from_file(str(file))
    assert isinstance(config, ClusterConfig)
    assert config.distributed_type == "MULTI_GPU" and config.mixed_precision == "no"
