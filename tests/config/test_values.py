"""Values that no model or run can use are refused when the settings are built, with the name and the value."""

from __future__ import annotations

from typing import Any

import pytest

from mlmf.config import LoraSettings, MLMFConfig, TrainConfig
from mlmf.config.parse import parse_config
from mlmf.errors import UserError


@pytest.mark.parametrize(
    ("schema", "setting", "value"),
    [
        (LoraSettings, "r", -3),
        (LoraSettings, "lora_alpha", 0),
        (LoraSettings, "lora_dropout", 3.0),
        (MLMFConfig, "beta", 0.0),
        (MLMFConfig, "epsilon", -1.0),
        (MLMFConfig, "epsilon", float("nan")),
        (MLMFConfig, "fusion_layers", [2, 2]),
        (MLMFConfig, "recall_tokens", -1),
        (MLMFConfig, "recall_neighbours", -1),
        (MLMFConfig, "code_dim", -1),
        (MLMFConfig, "c_m", 127),
        (MLMFConfig, "alpha", 1.0),
        (TrainConfig, "learning_rate", -1.0),
        (TrainConfig, "gate_learning_rate", float("inf")),
        (TrainConfig, "find_learning_rate", -1.0),
        (TrainConfig, "lambda_ret", float("nan")),
        (TrainConfig, "evidence_weight", -0.1),
        (TrainConfig, "max_grad_norm", 0.0),
        (TrainConfig, "max_reply_context", 0),
        (TrainConfig, "max_steps", 0),
        (TrainConfig, "objectives", []),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(schema: type, setting: str, value: Any) -> None:
    with pytest.raises(UserError, match=setting):
        schema(**{setting: value})


def test_states_that_are_no_codes_cannot_be_rounded() -> None:
    with pytest.raises(UserError, match="slots is int8 and code_dim is 0"):
        MLMFConfig(slots="int8", code_dim=0)


@pytest.mark.parametrize("rest", [[], ["--seed", "3"]])
def test_a_switch_needs_no_value(rest: list[str]) -> None:
    config = parse_config(TrainConfig, ["--overwrite_output_dir", *rest], prog="train.py", description="")
    assert config.overwrite_output_dir is True
    off = parse_config(TrainConfig, ["--overwrite_output_dir", "false", *rest], prog="train.py", description="")
    assert off.overwrite_output_dir is False
