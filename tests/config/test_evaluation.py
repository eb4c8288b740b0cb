"""The settings of an evaluation: how they may be given, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mlmf.config.evaluation import EvalConfig, accept_aliases
from mlmf.config.parse import parse_config
from mlmf.config.variants import base_system
from mlmf.data.tasks import TASKS
from mlmf.errors import UserError
from mlmf.systems.build import SYSTEMS

CONFIGS = Path(__file__).parents[2] / "configs" / "eval"


def parse(*argv: str) -> EvalConfig:
    return parse_config(EvalConfig, accept_aliases(argv), prog="evaluate.py", description="")


@pytest.mark.parametrize(
    "argv",
    [
        ("--system", "mlmf", "no_memory", "--task", "locco", "locomo"),
        ("--systems", "mlmf,no_memory", "--tasks=locco,locomo"),
        ("--system", "[mlmf, no_memory]", "--tasks", "locco", "locomo", "locco"),
    ],
)
def test_lists_may_be_given_as_people_type_them(argv: tuple[str, ...]) -> None:
    config = parse(*argv)
    assert config.system_names == ["mlmf", "no_memory"]
    assert config.task_names == ["locco", "locomo"]


def test_one_name_is_enough() -> None:
    assert EvalConfig(system="mlmf", checkpoint="x", tasks="locomo").system_names == ["mlmf"]
    assert parse("--task", "jsonl").task_names == ["jsonl"]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_in_the_repository_parses(path: Path) -> None:
    # a file that trains its own checkpoints takes none
    trains = "ablation_training" in yaml.safe_load(path.read_text(encoding="utf-8"))
    config = parse("--config", str(path), *([] if trains else ["--checkpoint", "somewhere"]))
    assert {base_system(name) for name in config.system_names} <= set(SYSTEMS)
    assert set(config.task_names) <= set(TASKS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"window_tokens": -1}, "window_tokens must be at least 0, got -1"),
        ({"neighbours": -1}, "neighbours must be at least 0, got -1"),
        ({"retrieved_turns": 0}, "retrieved_turns must be at least 1, got 0"),
        ({"dense_weight": 1.5}, r"dense_weight must be in \[0, 1\], got 1.5"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"max_error_share": 1.5}, r"max_error_share must be in \[0, 1\], got 1.5"),
        ({"answer_model": "checkpoint"}, "give --checkpoint DIR"),
        ({"answer_model": "server"}, "llm.base_url is null; give --llm.base_url URL and --llm.model NAME"),
        ({"judge": "llm"}, "judge_llm.model is null; give --judge_llm.model NAME"),
        ({"checkpoint_base": "x"}, "checkpoint_base is x, but checkpoint is null; give --checkpoint DIR"),
        ({"seeds": []}, r"seeds must be different numbers from 0 up, at least one, got \[\]"),
        ({"seeds": [1, 1]}, r"seeds must be different numbers"),
        ({"system": []}, "system is empty"),
        ({"tasks": ","}, "tasks is empty"),
        ({"success_threshold": 2}, r"success_threshold must be in \[0, 1\], got 2"),
        ({"predict_only": True, "score_only": True}, "leave nothing to do"),
        ({"score_only": True, "overwrite": True}, "would discard the answers"),
        ({"key": "both", "tasks": "locco"}, "key and audit_file are about LoCoMo, got tasks locco"),
        ({"data_file": "x.json", "tasks": ["locomo", "jsonl"]}, "data_file x.json goes with one task"),
    ],
)
def test_impossible_values_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EvalConfig(**settings)
