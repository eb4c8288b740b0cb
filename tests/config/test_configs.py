"""Every YAML file under configs/ is accepted by the script it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.variants import VariantsConfig
from mlmf.config import EvalConfig, TrainConfig
from mlmf.config.parse import parse_config
from mlmf.config.reference import ReferenceConfig
from mlmf.config.sweep import SweepConfig

CONFIGS = Path(__file__).parents[2] / "configs"
SCHEMAS: dict[str, type] = {
    "train": TrainConfig, "eval": EvalConfig, "systems": EvalConfig, "results": ReferenceConfig, "train/sweep.yaml": SweepConfig,
    **{f"systems/{name}.yaml": VariantsConfig for name in ("cognis_weights", "cognis_stages", "cogmem_parts")},
}  # fmt: skip
"""By folder, or by file where it is for something else."""
FILES = sorted(
    file for file in CONFIGS.rglob("*.yaml") if file.parent.name != "accelerate" and file.name != "sweep_wandb.yaml"
)
"""Those of accelerate and wandb are not ours to read, see tests/training/test_recipes.py and tests/test_sweep.py."""


def test_the_promised_files_exist() -> None:
    names = {str(file.relative_to(CONFIGS)) for file in FILES}
    assert {f"train/{name}.yaml" for name in ("smoke", "demo", "locco", "msc", "locomo")} <= names
    assert {f"eval/{name}.yaml" for name in ("smoke", "demo", "locco", "locomo")} <= names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIGS)))
def test_a_config_file_parses(file: Path) -> None:
    schema = SCHEMAS.get(str(file.relative_to(CONFIGS)), SCHEMAS.get(file.parent.name))
    assert schema is not None
    config = parse_config(schema, ["--config", str(file)], prog="test", description="")
    assert isinstance(config, schema)
    assert config != schema(), "a file that changes nothing says nothing"
