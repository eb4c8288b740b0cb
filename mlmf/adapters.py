"""LoRA adapters of the wrapped model, and how to read with the frozen base alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from mlmf.config.model import LoraSettings
from mlmf.errors import UserError


def with_lora(lm: PreTrainedModel, settings: LoraSettings) -> PreTrainedModel:
    """Adapters on every linear layer of the decoder blocks, in the model's dtype; the base is frozen either way.

    Raises:
        UserError: ``target_modules`` names no layer of the model.
    """
    lm.requires_grad_(False)
    if settings.r == 0:
        return lm
    lora = LoraConfig(
        r=settings.r, lora_alpha=settings.lora_alpha, lora_dropout=settings.lora_dropout, task_type="CAUSAL_LM",
        target_modules=settings.target_modules or "all-linear",
    )  # fmt: skip
    # float32 adapters on a bfloat16 base make every step several times slower; the optimiser keeps float32 masters
    # a PeftModel forwards everything to the model it holds
    try:
        return cast("PreTrainedModel", get_peft_model(lm, lora, autocast_adapter_dtype=False))
    except ValueError as error:
        raise UserError(f"lora.target_modules {settings.target_modules}: {error}") from error


@contextmanager
def without_adapters(lm: PreTrainedModel) -> Iterator[None]:
    """The frozen base model alone."""
    # peft's own context manager inspects every adapter on each use, which costs a fifth of reading a session
    adapters: Any = lm.base_model if isinstance(lm, PeftModel) else None
    if adapters is not None:
        adapters.disable_adapter_layers()
    try:
        yield
    finally:
        if adapters is not None:
            adapters.enable_adapter_layers()
