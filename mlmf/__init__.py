"""Trained long-term memory for any Hugging Face causal language model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlmf.config.model import MLMFConfig as MLMFConfig
    from mlmf.memory.state import MemoryState as MemoryState
    from mlmf.model import MLMFModel as MLMFModel

__version__ = "0.1.0"

_HOMES = {"MLMFConfig": "mlmf.config.model", "MLMFModel": "mlmf.model", "MemoryState": "mlmf.memory.state"}
__all__ = ["MLMFConfig", "MLMFModel", "MemoryState"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that ``--help`` does not wait for torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mlmf' has no attribute {name!r}")
