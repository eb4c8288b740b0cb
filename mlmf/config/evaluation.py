"""Settings of ``evaluate.py``: which systems answer which questions, with what, and where the results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from mlmf.config.cogmem import CogMemSettings
from mlmf.config.cognis import CognisSettings
from mlmf.config.llm import ChatSettings, JudgeSettings
from mlmf.config.model import MemorySettings
from mlmf.config.variants import FULL, MLMF, base_system, variant_of, variant_systems
from mlmf.errors import UserError

_ALIASES = {"--task": "--tasks", "--systems": "--system", "--conversation": "--conversations", "--seed": "--seeds"}


@dataclass
class EvalConfig:
    """One evaluation: every system is asked the questions of every task."""

    system: str | list[str] = field(default_factory=lambda: ["no_memory"])
    """Systems under test: no_memory, recent_window, full_context, bm25, dense, hybrid, cogmem, cognis, mlmf; controls:
    oracle_evidence, always_abstain, most_frequent."""
    checkpoint: str | None = None
    """Folder of the trained model; the system mlmf needs one. {seed} in it stands for each of seeds: one model per seed;
    {fold} for each of folds, {variant} for each variant of ablations."""
    folds: int | None = None
    """Folds by conversation (`python -m mlmf.data.splits`): each conversation is asked of the checkpoint of its own fold,
    whose training left it out. Needs {fold} in checkpoint."""
    fold_seed: int = 0
    """Seed of the folds; the one that the trainings' conversations were divided by."""
    ablations: Literal["table5"] | None = None
    """Compare variants of the memory, one checkpoint each, as the systems mlmf_full, mlmf_no_semantic, mlmf_no_episodic,
    mlmf_no_retention, mlmf_no_gating (Table V of the MLMF paper). The other systems that are named stand beside them."""
    ablation_training: list[str] | None = None
    """Files of settings of train.py: without a checkpoint, each variant is trained under each seed by these stages in turn,
    into the folder training of output_dir; what an earlier run trained is taken up."""
    checkpoint_base: str | None = None
    """Where the checkpoint's base model is, if not where its name leads: a local path or hub id."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """Changes to the memory of the checkpoint, such as its capacity or the text it recalls."""
    base_model: str = "smollm2-135m"
    """Known name, local path or Hugging Face id of the model that answers for the text systems."""
    answer_model: Literal["base", "checkpoint", "server"] = "base"
    """What answers for the text systems: base_model as it is, the checkpoint's fine-tuned model, memory empty, or the
    model of llm."""
    llm: ChatSettings = field(default_factory=ChatSettings)
    """The model that answers where answer_model is server."""
    chat: bool = False
    """Put the prompts of the text systems into the answer model's chat template."""
    tasks: str | list[str] = field(default_factory=lambda: ["locco"])
    """Where the questions come from: locco, locco_l, locomo, longmemeval, recall, jsonl."""
    data_file: str | None = None
    """Your own data: for locomo and longmemeval any file in their layout, for jsonl one in the documented own format."""
    probes: str | None = None
    """Your own questions about LOCCO's users, in place of the packaged probes."""
    split: str | None = None
    """Which part of the data; null takes the task's own test part."""
    allow_unknown_data: bool = False
    """Accept a benchmark file whose sha256 is not the pinned one; the report then says so."""
    conversations: list[str] | None = None
    """Ids of the conversations to use; null uses all."""
    allow_trained_conversations: bool = False
    """Score a checkpoint even on conversations that it was trained on; the results say which."""
    captions: bool = True
    """Show what shared pictures of LoCoMo show; about 32 of its questions cannot be answered without."""
    key: Literal["raw", "audited", "both"] = "raw"
    """Gold answers of LoCoMo: as published, as corrected by the public audit, or both in tables of their own."""
    audit_file: str | None = None
    """The audit, if it does not lie beside LoCoMo."""
    retention: Literal["balanced", "released"] | None = None
    """Ask after each of six periods all questions about the periods so far. balanced: equal sixths; released: LOCCO's own."""
    success_threshold: float = 0.5
    """Main F1 from which an answer counts as a success."""
    consistency_threshold: float = 0.5
    """Robust F1 from which an answer counts as consistent with the gold one, which one that contains it always does; with
    consistency_model the probability of entailment."""
    consistency_model: str | None = None
    """Trained judge of consistency: local path or Hugging Face id of a sentence-transformers cross-encoder for natural
    language inference; null judges by words."""
    consistency_labels: str | None = None
    """Answers that people labelled, to measure how often the judges of consistency are right; reported apart."""
    judge: Literal["llm"] | None = None
    """llm: let a language model judge the answers as well, in a column J of its own."""
    judge_llm: JudgeSettings = field(default_factory=JudgeSettings)
    """The model of judge llm; its verdicts are kept in output_dir, unless cache names another file."""
    predict_only: bool = False
    """Ask the systems and keep the answers, without scoring them."""
    score_only: bool = False
    """Score the answers that output_dir holds, without asking any system."""
    compare: list[str] | None = None
    """Finished output folders to compare with each other, in place of a run; the comparison is written to output_dir."""
    limit: int | None = None
    """Ask only the first so many questions of each task; stamped on everything that is written."""
    window_tokens: int = 400
    """Token budget of the remembered lines in a prompt, the same for every text system; full_context is not held to it."""
    retrieved_turns: int = 20
    """The most turns that bm25, dense, hybrid, cogmem and cognis show, within window_tokens."""
    neighbours: int = 0
    """Turns before and after each found one that bm25, dense, hybrid, cogmem and cognis show too, where window_tokens allows."""
    encoder: str = "all-minilm-l6-v2"
    """Sentence encoder of dense, hybrid, cogmem and cognis: known name, local path or Hugging Face id."""
    cognis: CognisSettings = field(default_factory=CognisSettings)
    """How cognis keeps and finds memories."""
    dense_weight: float = 0.5
    """Share of the dense ranking in hybrid and cogmem, 0 to 1; BM25 has the rest."""
    cogmem: CogMemSettings = field(default_factory=CogMemSettings)
    """The system cogmem."""
    training_task: str = "locco"
    """Task whose answers most_frequent counts; locco and recall have a training part of their own."""
    training_file: str | None = None
    """File of that task with the training questions (locco: probes), about other conversations than those asked."""
    max_new_tokens: int = 24
    """Longest answer, in tokens."""
    batch_size: int = 16
    """Questions answered together."""
    device: str | None = None
    """Such as cuda:1; null takes CUDA where there is one, else the CPU."""
    output_dir: str = "outputs/eval"
    """Folder of results.json, report.md and, by task and system, the answers; runs of several systems may share it."""
    overwrite: bool = False
    """Discard what output_dir holds for the same tasks and systems, and answer every question anew."""
    seeds: list[int] = field(default_factory=lambda: [0])
    """Ask everything once per seed: seed of any system that draws random numbers; the first also of the bootstrap."""
    max_error_share: float = 0.02
    """Share of failed questions above which the run exits with code 1."""

    def __post_init__(self) -> None:
        """Refuse values no run can be made from."""
        for name in ("batch_size", "max_new_tokens", "retrieved_turns"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("window_tokens", "neighbours"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not 0.0 <= self.dense_weight <= 1.0:
            raise UserError(f"dense_weight must be in [0, 1], got {self.dense_weight}")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit must be at least 1, got {self.limit}; null asks every question")
        for name in ("max_error_share", "success_threshold", "consistency_threshold"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.predict_only and self.score_only:
            raise UserError("predict_only and score_only leave nothing to do; give one of them")
        if self.score_only and self.overwrite:
            raise UserError("overwrite would discard the answers that score_only scores; give one of them")
        if self.answer_model == "checkpoint" and self.checkpoint is None:
            raise UserError("answer_model is checkpoint, but checkpoint is null; give --checkpoint DIR")
        if self.answer_model == "server" and self.llm.base_url is None:
            raise UserError(
                "answer_model is server, but llm.base_url is null; give --llm.base_url URL and --llm.model NAME"
            )
        if self.judge == "llm" and self.judge_llm.model is None:
            raise UserError("judge is llm, but judge_llm.model is null; give --judge_llm.model NAME")
        if self.checkpoint_base is not None and self.checkpoint is None:
            raise UserError(
                f"checkpoint_base is {self.checkpoint_base}, but checkpoint is null; give --checkpoint DIR"
            )
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds must be different numbers from 0 up, at least one, got {self.seeds}")
        if not self.system_names:
            raise UserError("system is empty; name at least one")
        if not self.task_names:
            raise UserError("tasks is empty; name at least one")
        self._check_placeholders()
        if self.data_file is not None and len(self.task_names) > 1:
            raise UserError(f"data_file {self.data_file} goes with one task, got {', '.join(self.task_names)}")
        if "locomo" not in self.task_names and (self.key != "raw" or self.audit_file is not None):
            raise UserError(f"key and audit_file are about LoCoMo, got tasks {', '.join(self.task_names)}")

    def _check_placeholders(self) -> None:
        """Refuse folds and ablations that do not fit the checkpoint's name."""
        for name, option, setting in (("fold", "folds", self.folds), ("variant", "ablations", self.ablations)):
            is_named = f"{{{name}}}" in (self.checkpoint or "")
            if is_named and setting is None:
                raise UserError(f"checkpoint {self.checkpoint} names a {{{name}}}; say which with --{option}")
            if setting is not None and not is_named and not (option == "ablations" and self.ablation_training):
                way_out = ", or --ablation_training FILES to train them" if option == "ablations" else ""
                raise UserError(
                    f"{option} is {setting}, but checkpoint {self.checkpoint or 'null'} names no {{{name}}}; give one for "
                    f"each, such as --checkpoint 'outputs/{name}_{{{name}}}/final'{way_out}"
                )
        if self.folds is not None and self.folds < 2:
            raise UserError(f"folds must be at least 2, got {self.folds}; null scores one checkpoint on everything")
        if self.ablation_training is not None and (self.ablations is None or self.checkpoint is not None):
            raise UserError(
                "ablation_training trains the variants of ablations; give --ablations, and no --checkpoint"
            )
        if self.ablation_training == []:
            raise UserError("ablation_training is empty; give the files of settings that train.py would be given")

    @property
    def system_names(self) -> list[str]:
        """The systems, each once, whether given as a list, as one name or as ``a,b``; variants in place of ``mlmf``."""
        names = _names(self.system)
        if self.ablations is None:
            return names
        return [*(name for name in names if name != MLMF), *variant_systems(self.ablations)]

    @property
    def task_names(self) -> list[str]:
        """The tasks, each once, whether given as a list, as one name or as ``a,b``."""
        return _names(self.tasks)

    def uses_checkpoint(self, system: str) -> bool:
        """Whether a system answers with the trained checkpoint, as memory or as a language model alone."""
        return self.checkpoint is not None and (base_system(system) == MLMF or self.answer_model == "checkpoint")

    def parts(self, system: str, seed: int) -> list[tuple[int | None, EvalConfig]]:
        """What a system is asked with under one of the seeds: each fold with its settings.

        In ``checkpoint`` of the settings seed, fold and variant stand in place of their names; a system that is no variant
        takes the full memory's. Without folds, and for a system that uses no checkpoint, there is one part, with ``None``.
        """
        folds = [None] if self.folds is None or not self.uses_checkpoint(system) else range(self.folds)
        return [(fold, self._at(seed, variant_of(system) or FULL, fold or 0)) for fold in folds]

    def _at(self, seed: int, variant: str, fold: int) -> EvalConfig:
        checkpoint = self.checkpoint
        for name, value in (("seed", str(seed)), ("variant", variant), ("fold", str(fold))):
            checkpoint = checkpoint and checkpoint.replace(f"{{{name}}}", value)
        return replace(self, seeds=[seed], checkpoint=checkpoint, folds=None, ablations=None, ablation_training=None)


def accept_aliases(argv: Sequence[str]) -> list[str]:
    """The command line with ``--task``, ``--systems``, ``--conversation`` and ``--seed`` in their canonical number."""
    renamed = []
    for argument in argv:
        option, equals, value = argument.partition("=")
        renamed.append(f"{_ALIASES.get(option, option)}{equals}{value}")
    return renamed


def _names(value: str | list[str]) -> list[str]:
    parts = [value] if isinstance(value, str) else value
    names = [name.strip() for part in parts for name in part.split(",")]
    return list(dict.fromkeys(name for name in names if name))
