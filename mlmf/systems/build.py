"""From the name of a system to the system: the one table of systems, and the models they answer with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from mlmf.config.evaluation import EvalConfig
from mlmf.errors import UserError, unknown_name
from mlmf.llm.base import LanguageModel
from mlmf.systems.base import MemorySystem
from mlmf.systems.baselines import FullContext, NoMemory, RecentWindow

LanguageModelLoader = Callable[[], LanguageModel]
Builder = Callable[[EvalConfig, LanguageModelLoader], MemorySystem]


def check_systems(config: EvalConfig) -> None:
    """Check the names of the systems and what they need, before anything is loaded.

    Raises:
        UserError: an unknown system, ``mlmf`` without a checkpoint, or a checkpoint that is not there.
    """
    for name in config.system_names:
        if name not in SYSTEMS:
            raise unknown_name("system", name, SYSTEMS)
    if "mlmf" in config.system_names and config.checkpoint is None:
        raise UserError("system mlmf needs a trained model; give --checkpoint DIR, the output_dir of train.py")
    if config.checkpoint is not None and not Path(config.checkpoint).is_dir():
        raise UserError(f"checkpoint {config.checkpoint}: no such folder; train.py prints the folder it saves to")


def answer_model_loader(config: EvalConfig) -> LanguageModelLoader:
    """A function that loads the answer model at its first call and returns the same one afterwards."""
    return cache(lambda: _load_answer_model(config))


def build_system(name: str, config: EvalConfig, answer_model: LanguageModelLoader) -> MemorySystem:
    """Build one system.

    Args:
        name: a key of :data:`SYSTEMS`.
        config: the evaluation's settings.
        answer_model: called by the systems that answer with a plain language model; share it between them.

    Raises:
        UserError: the model or the checkpoint cannot be loaded.
    """
    return SYSTEMS[name](config, answer_model)


def _no_memory(config: EvalConfig, answer_model: LanguageModelLoader) -> MemorySystem:
    return NoMemory(answer_model(), max_new_tokens=config.max_new_tokens, instruct=_instruct(config))


def _recent_window(config: EvalConfig, answer_model: LanguageModelLoader) -> MemorySystem:
    return RecentWindow(
        answer_model(),
        max_new_tokens=config.max_new_tokens,
        budget=config.window_tokens,
        instruct=_instruct(config),
    )


def _full_context(config: EvalConfig, answer_model: LanguageModelLoader) -> MemorySystem:
    return FullContext(answer_model(), max_new_tokens=config.max_new_tokens, instruct=_instruct(config))


def _instruct(config: EvalConfig) -> bool:
    return config.answer_model == "base"


def _mlmf(config: EvalConfig, answer_model: LanguageModelLoader) -> MemorySystem:
    from mlmf.systems.mlmf import MLMFSystem

    assert config.checkpoint is not None
    return MLMFSystem.from_checkpoint(
        config.checkpoint,
        base_model=config.checkpoint_base,
        device=config.device,
        max_new_tokens=config.max_new_tokens,
    )


def _load_answer_model(config: EvalConfig) -> LanguageModel:
    if config.answer_model == "checkpoint":
        from mlmf.systems.mlmf import language_model

        assert config.checkpoint is not None
        return language_model(config.checkpoint, base_model=config.checkpoint_base, device=config.device)
    # here, not at the top: reading the table of systems must not load torch
    from mlmf.base_model import load_base
    from mlmf.llm.local import LocalLanguageModel

    model, tokenizer = load_base(config.base_model, device=config.device)
    return LocalLanguageModel(model, tokenizer, chat=config.chat)


SYSTEMS: dict[str, Builder] = {
    "no_memory": _no_memory,
    "recent_window": _recent_window,
    "full_context": _full_context,
    "mlmf": _mlmf,
}
