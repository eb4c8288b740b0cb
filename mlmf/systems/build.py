"""From the name of a system to the system: the one table of systems, and the models they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlmf.config.evaluation import EvalConfig
from mlmf.config.variants import MLMF, base_system
from mlmf.errors import UserError, unknown_name
from mlmf.llm.base import LanguageModel
from mlmf.paths import sha256_of
from mlmf.systems.base import MemorySystem, System
from mlmf.systems.baselines import FullContext, NoMemory, RecentWindow
from mlmf.systems.controls import OracleEvidence, always_abstain, most_frequent
from mlmf.systems.retrieved import RetrievedTurns
from mlmf.systems.text import Answering

if TYPE_CHECKING:
    from mlmf.retrieval.base import Index
    from mlmf.retrieval.encoder import SentenceEncoder


class Shared:
    """What the systems of a run share: each is loaded when the first system needs it, and once."""

    def __init__(self, config: EvalConfig) -> None:
        """Load nothing yet."""
        self.config = config

    @cached_property
    def answering(self) -> Answering:
        """Answer model, budget and decoding of every text system."""
        config = self.config
        return Answering(
            language_model=_load_answer_model(config),
            max_new_tokens=config.max_new_tokens,
            budget=config.window_tokens,
            instruct=config.answer_model != "checkpoint",
        )

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The encoder of the systems that search by meaning."""
        from mlmf.retrieval.encoder import SentenceEncoder

        return SentenceEncoder(self.config.encoder, device=self.config.device)


@dataclass(frozen=True, slots=True)
class Entry:
    """How a system is built."""

    build: Callable[[Shared], System]
    settings: tuple[str, ...] = ()
    """Fields of :class:`EvalConfig` that may change its answers, beside those of the task."""


def check_systems(config: EvalConfig) -> None:
    """Check the names of the systems and what they need, before anything is loaded.

    Raises:
        UserError: an unknown system, ``mlmf`` without a checkpoint, or a checkpoint that is not there.
    """
    for name in config.system_names:
        if base_system(name) not in SYSTEMS:
            raise unknown_name("system", name, SYSTEMS)
        if base_system(name) == MLMF and config.checkpoint is None:
            raise UserError(
                "system mlmf needs a trained model; give --checkpoint DIR, the folder final in the output_dir of train.py"
            )
    for seed in config.seeds:
        for name in (MLMF, *config.system_names):
            for _, part in config.parts(name, seed):
                if part.checkpoint is not None and not Path(part.checkpoint).is_dir():
                    raise UserError(
                        f"checkpoint {part.checkpoint}: no such folder; train.py prints the folder it saves to"
                    )


def build_system(name: str, shared: Shared) -> System:
    """Build one system.

    Args:
        name: a key of :data:`SYSTEMS`, or a variant of ``mlmf``.
        shared: the settings and what the systems of the run share.

    Raises:
        UserError: a model, the checkpoint or the training file cannot be loaded.
    """
    return SYSTEMS[base_system(name)].build(shared)


def system_settings(name: str, config: EvalConfig) -> dict[str, Any]:
    """The settings that may change what system ``name`` answers: part of what its results are stored under."""
    settings = {field: getattr(config, field) for field in SYSTEMS[base_system(name)].settings}
    if "memory" in settings:
        settings["memory"] = config.memory.changed
    if "cogmem" in settings:
        settings["cogmem"] = config.cogmem.changing_answers
    if "cognis" in settings:
        settings["cognis"] = config.cognis.changing_answers
    if settings.get("answer_model", "base") != "base":
        settings["base_model"] = None
    if settings.get("answer_model") == "server":
        settings |= {"chat": None, "llm": config.llm.described}
    if "encoder" in settings and Path(config.encoder).is_dir():
        # the last part only: results name no place on the machine they come from
        settings["encoder"] = Path(config.encoder).resolve().name
    file = settings.get("training_file")
    if file is not None and Path(file).is_file():
        settings |= {"training_file": Path(file).name, "training_sha256": sha256_of(Path(file))}
    return settings


def _retrieved(name: str, new_index: Callable[[Shared], Index], shared: Shared) -> RetrievedTurns:
    turns, neighbours = shared.config.retrieved_turns, shared.config.neighbours
    return RetrievedTurns(name, shared.answering, partial(new_index, shared), turns=turns, neighbours=neighbours)


def _bm25(shared: Shared) -> Index:
    from mlmf.retrieval.bm25 import BM25Index

    return BM25Index()


def _dense(shared: Shared) -> Index:
    from mlmf.retrieval.dense import DenseIndex

    return DenseIndex(shared.encoder)


def _hybrid(shared: Shared) -> Index:
    from mlmf.retrieval.fusion import HybridIndex

    weight = shared.config.dense_weight
    return HybridIndex([_bm25(shared), _dense(shared)], [1 - weight, weight])


def _cogmem(shared: Shared) -> MemorySystem:
    from mlmf.systems.cogmem.build import Agents, build_cogmem
    from mlmf.systems.cogmem.system import CogMemSystem, TurnSearch

    config = shared.config
    search = TurnSearch(partial(_hybrid, shared))
    memory = build_cogmem(
        # a conversation of the harness begins with an empty memory, and must not touch what a chat remembers
        replace(config.cogmem, sessions=None, vectors=None, missing_turns=config.retrieved_turns),
        count_tokens=shared.answering.language_model.count_tokens,
        new_encoder=lambda: shared.encoder,
        load_agent=Agents(config.cogmem, base_model=config.base_model, device=config.device),
        rank=search.rank,
    )
    return CogMemSystem(shared.answering, memory, search, neighbours=config.neighbours)


def _cognis(shared: Shared) -> MemorySystem:
    from mlmf.systems.cognis.build import build_cognis
    from mlmf.systems.cognis.system import CognisSystem

    config = shared.config
    memory = build_cognis(
        config.cognis, shared.encoder, encoder_name=config.encoder, base_model=config.base_model, device=config.device
    )
    return CognisSystem(shared.answering, memory, turns=config.retrieved_turns, neighbours=config.neighbours)


def _most_frequent(shared: Shared) -> MemorySystem:
    # here, not at the top: reading the table of systems must not read data
    from mlmf.systems.training_answers import training_questions

    return most_frequent(training_questions(shared.config))


def _mlmf(shared: Shared) -> MemorySystem:
    from mlmf.systems.mlmf import MLMFSystem

    config = shared.config
    assert config.checkpoint is not None
    return MLMFSystem.from_checkpoint(
        config.checkpoint,
        base_model=config.checkpoint_base,
        device=config.device,
        max_new_tokens=config.max_new_tokens,
        memory=config.memory,
    )


def _load_answer_model(config: EvalConfig) -> LanguageModel:
    if config.answer_model == "checkpoint":
        from mlmf.systems.mlmf import language_model

        assert config.checkpoint is not None
        return language_model(config.checkpoint, base_model=config.checkpoint_base, device=config.device)
    # here, not at the top: reading the table of systems must not load torch
    if config.answer_model == "server":
        from mlmf.llm.load import load_chat_model
        from mlmf.llm.prompted import PromptedChatModel

        return PromptedChatModel(load_chat_model(config.llm))
    from mlmf.base_model import load_base
    from mlmf.llm.local import LocalLanguageModel

    model, tokenizer = load_base(config.base_model, device=config.device)
    return LocalLanguageModel(model, tokenizer, chat=config.chat)


_ANSWERING = ("answer_model", "base_model", "chat")
_SEARCHING = (*_ANSWERING, "window_tokens", "retrieved_turns", "neighbours")

SYSTEMS: dict[str, Entry] = {
    "no_memory": Entry(lambda shared: NoMemory(shared.answering), _ANSWERING),
    "recent_window": Entry(lambda shared: RecentWindow(shared.answering), (*_ANSWERING, "window_tokens")),
    "full_context": Entry(lambda shared: FullContext(shared.answering), _ANSWERING),
    "bm25": Entry(partial(_retrieved, "bm25", _bm25), _SEARCHING),
    "dense": Entry(partial(_retrieved, "dense", _dense), (*_SEARCHING, "encoder")),
    "hybrid": Entry(partial(_retrieved, "hybrid", _hybrid), (*_SEARCHING, "encoder", "dense_weight")),
    "cogmem": Entry(_cogmem, (*_SEARCHING, "encoder", "dense_weight", "cogmem")),
    "cognis": Entry(_cognis, (*_SEARCHING, "encoder", "cognis")),
    "oracle_evidence": Entry(lambda shared: OracleEvidence(shared.answering), (*_ANSWERING, "window_tokens")),
    "always_abstain": Entry(lambda shared: always_abstain()),
    "most_frequent": Entry(_most_frequent, ("training_task", "training_file")),
    "mlmf": Entry(_mlmf, ("memory",)),
}
