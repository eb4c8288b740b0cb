from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlmf import checkpoint
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.training import TrainConfig
from mlmf.data.jsonl import load_jsonl
from mlmf.errors import UserError
from mlmf.training.run import run_training

ROOT = Path(__file__).parents[2]
MakeConfig = Callable[..., TrainConfig]


@pytest.fixture
def tiny() -> MLMFConfig:
    return MLMFConfig(base_model="tiny-random", lora=LoraSettings(r=4), recall_nodes=2)


def test_from_a_file_of_conversations_to_a_checkpoint(
    make_config: MakeConfig, tiny: MLMFConfig, data_file: Path, tmp_path: Path
) -> None:
    final = run_training(make_config(data_file=str(data_file), model=tiny, max_steps=2))
    assert final == tmp_path / "run" / "final"
    assert checkpoint.read_config(final).base_model == "tiny-random"
    facts = checkpoint.read_metadata(final)["training"]
    assert (facts["task"], facts["examples"], facts["total_steps"]) == ("jsonl", 10, 2)
    # evaluate.py refuses to score it on these
    assert facts["conversation_ids"] == {"jsonl": [conversation.id for conversation in load_jsonl(data_file)]}
    again = make_config(data_file=str(data_file), init_from=str(final), max_steps=1, output_dir=str(tmp_path / "more"))
    assert run_training(again) == tmp_path / "more" / "final"
    first, second = checkpoint.training_stages(tmp_path / "more" / "final")
    assert first == {name: value for name, value in facts.items() if name != "earlier_stages"}
    assert (first["total_steps"], second["total_steps"]) == (2, 1)


def test_a_dry_run_writes_nothing(make_config: MakeConfig, tiny: MLMFConfig, data_file: Path, tmp_path: Path) -> None:
    assert run_training(make_config(data_file=str(data_file), model=tiny, dry_run=True)) is None
    assert not (tmp_path / "run").exists()


def test_a_full_folder_is_refused_before_anything_slow(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        run_training(make_config(data_file="never read", model=MLMFConfig(base_model="never loaded")))


def test_a_file_that_is_not_there_is_named(make_config: MakeConfig, tiny: MLMFConfig) -> None:
    with pytest.raises(UserError, match=r"nowhere\.jsonl"):
        run_training(make_config(data_file="nowhere.jsonl", model=tiny))


def test_a_dry_run_without_the_base_model_plans_the_run(
    make_config: MakeConfig, data_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(data_file=str(data_file), dry_run=True, model=MLMFConfig(base_model="Qwen/Qwen3-4B"))
    assert run_training(config) is None
    printed = capsys.readouterr().out
    assert "4,022,468,096" in printed and "memory: optimiser" in printed
    assert not Path(config.output_dir).exists()


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (["--leraning_rate", "1e-3"], None, "learning_rate"),
        (
            ["--data_file", "talks.jsonl"],
            '{"id": "a", "sessions": [{"turns": [{"speaker": "A", "text": "x"}]}]}',
            "nothing to train on",
        ),
    ],
    ids=["unknown key", "empty dataset"],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "talks.jsonl").write_text(content + "\n")
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "--task",
        "jsonl",
        "--model.base_model",
        "tiny-random",
        *arguments,
    ]
    environment = {**os.environ, "MLMF_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--output_dir", "run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2, done.stderr
    assert len(errors) == 1 and message in errors[0]
    assert "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "run" / "final").exists()
