"""Dataclasses that are the schema of every YAML file and command line."""

from __future__ import annotations

from mlmf.config.evaluation import EvalConfig
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.training import TrainConfig

__all__ = ["EvalConfig", "LoraSettings", "MLMFConfig", "TrainConfig"]
