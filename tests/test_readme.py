"""What README shows is true: its Python runs, its settings exist, its files are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mlmf import MLMFConfig, MLMFModel
from mlmf.config import EvalConfig, TrainConfig
from mlmf.config.evaluation import accept_aliases
from mlmf.config.parse import parse_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = {"train.py": TrainConfig, "evaluate.py": EvalConfig}


def blocks(language: str) -> list[str]:
    return [
        body
        for name, body in re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
        if name == language
    ]


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[i:] for line in words for i, word in enumerate(line) if word in SCRIPTS]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_a_command_is_accepted(command: list[str]) -> None:
    script, *options = command
    options = accept_aliases(options) if script == "evaluate.py" else options
    parse_config(SCRIPTS[script], options, prog=script, description="")


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = ["".join(block.splitlines()) for block in blocks("json")]
    (tmp_path / "my_conversations.jsonl").write_text(line + "\n", encoding="utf-8")
    MLMFModel.from_base("tiny-random", MLMFConfig()).save_pretrained(tmp_path / "outputs" / "demo" / "final")
    (example,) = blocks("python")
    exec(example, {})
    assert (tmp_path / "anna.safetensors").is_file()


def test_the_file_tree_names_what_is_there() -> None:
    (tree,) = [block for block in blocks("") if block.startswith("train.py")]
    for line in tree.splitlines():
        names = re.match(r"[ ]*((?:[\w/.]+(?:, )?)+)", line)
        assert names is not None
        folder = ROOT / "mlmf" if line.startswith(" ") else ROOT
        for name in names[1].rstrip(", ").split(", "):
            assert (folder / name).exists(), f"README's tree names {name}"
