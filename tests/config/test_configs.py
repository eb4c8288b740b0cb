"""Every YAML file under configs/ is accepted by the script it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.config import EvalConfig, TrainConfig
from mlmf.config.parse import parse_config

CONFIGS = Path(__file__).parents[2] / "configs"
SCHEMAS = {"train": TrainConfig, "eval": EvalConfig, "systems": EvalConfig}
FILES = sorted(CONFIGS.rglob("*.yaml"))


def test_the_promised_files_exist() -> None:
    names = {str(file.relative_to(CONFIGS)) for file in FILES}
    assert {f"train/{name}.yaml" for name in ("smoke", "demo", "locco", "msc", "locomo")} <= names
    assert {f"eval/{name}.yaml" for name in ("smoke", "demo", "locco", "locomo")} <= names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIGS)))
def test_a_config_file_parses(file: Path) -> None:
    schema = SCHEMAS[file.parent.name]
    config = parse_config(schema, ["--config", str(file)], prog="test", description="")
    assert isinstance(config, schema)
    assert config != schema(), "a file that changes nothing says nothing"
