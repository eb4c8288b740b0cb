"""Settings of ``train.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mlmf.config.model import MLMFConfig
from mlmf.errors import UserError

Objective = Literal["answer", "reply", "cloze"]


@dataclass
class TrainConfig:
    """Everything a training run depends on; written to ``config.yaml`` in its output folder."""

    task: str = "locco"
    """Training data: locco, locco_l, msc, locomo, recall or jsonl."""
    data_file: str | None = None
    """File to read instead of the task's own; needed for jsonl."""
    probes: str | None = None
    """Questions to train on instead of LOCCO's own, in the format of its probe files."""
    split: str | None = None
    """Split of the task's own data: locco has train, test and untested (every user but the test ones), msc train, valid and test, recall train and test. null is the task's own choice, for msc valid."""
    conversations: list[str] | None = None
    """Ids of the conversations to train on; null takes all."""
    also: list[str] = field(default_factory=list)
    """More data to train on together with the task's, each entry a task or task:split, such as msc:valid."""
    also_conversations: int | None = None
    """Conversations taken of each entry of also, drawn by the seed; null takes all."""
    named_share: float = 0.0
    """Share of the conversations that come a second time with names for speakers such as User, and questions about that
    person in place of I."""
    swapped_share: float = 0.0
    """Share of the answerable ones of these questions that are also asked about the assistant talked to, who never said it: the
    answer is that nothing is known."""
    allow_unknown_data: bool = False
    """Accept a benchmark file whose sha256 is not the pinned one."""
    objectives: list[Objective] = field(default_factory=lambda: ["answer"])
    """answer: answer questions after the sessions; reply: generate the next turn given the memory of earlier sessions;
    cloze: fill gaps in what was said, which needs no questions: self-supervision, best as a stage before answer."""
    gaps_per_session: int = 3
    """cloze: sentences of a session that gaps are made in, at most."""
    model: MLMFConfig = field(default_factory=MLMFConfig)
    """The memory model."""
    generate: bool = True
    """false trains only what finds, by the evidence loss over whole histories: a first stage without a pass of the wrapped
    model. Best with batches of one conversation's questions, which share its memory."""
    init_from: str | None = None
    """Checkpoint whose weights and settings the run starts from; null starts from the base model. Of model only recall_nodes,
    recall_tokens and abstain_from count then, in place of the checkpoint's."""

    num_train_epochs: int = 5
    """Passes over the examples."""
    max_steps: int | None = None
    """Optimiser steps; overrides num_train_epochs."""
    per_device_train_batch_size: int = 16
    """Examples per step and process."""
    gradient_accumulation_steps: int = 1
    """Batches per optimiser step; every loss is a mean over the whole step, however it is split."""
    learning_rate: float = 3e-4
    """Peak rate of the LoRA adapters."""
    copied_learning_rate: float = 2e-4
    """Peak rate of the fusion projections, which start as copies of the wrapped model's."""
    fresh_learning_rate: float = 2e-3
    """Peak rate of the memory weights that start from nothing: episodic queries, messages, salience, the
    slot that stands for having found nothing."""
    find_learning_rate: float = 5e-4
    """Peak rate of the key projection and the weights of query tokens."""
    mixing_learning_rate: float = 1e-2
    """Peak rate of the weights of the find score's parts; no weight decay on them."""
    gate_learning_rate: float = 5e-2
    """Peak rate of gates, sharpness and doubt, single numbers with far to go; no weight decay on them."""
    weight_decay: float = 0.0
    """AdamW weight decay of adapters and memory weights."""
    warmup_steps: int = 20
    """Linear warm-up; a cosine to 5 % of the peak follows."""
    max_grad_norm: float = 1.0
    """Gradient clipping."""
    lambda_ret: float = 0.1
    """Weight of the retention loss (eq. 10)."""
    lambda_ramp_steps: int = 50
    """Steps over which that weight grows from 0."""
    evidence_weight: float = 0.3
    """Weight of the evidence loss: find the turns known to hold the answer, or nothing where nothing does."""
    entropy_weight: float = 0.0
    """Weight of the hinge on the layer gate's entropy (alg. 26)."""
    distractor_sessions: int = 3
    """Other sessions of the conversation in memory beside the one that holds the answer, at most."""
    untold_share: float = 0.15
    """Share of the questions with known evidence that are asked of a memory without it, where the right answer is that
    nothing is known."""
    shown_share: float = 0.0
    """Share of the steps whose prompts also show the turns found, as dated lines: text mode is learned so, beside the other."""
    shown_tokens: int = 400
    """Tokens of these lines, at most; every such step draws its budget from a fourth of it on."""
    distractor_ramp: float = 0.5
    """Share of the training over which distractor_sessions grows from 0."""
    tbptt_sessions: int = 0
    """Gradients flow through this many sessions (truncated back-propagation through time); 0 is all of them."""
    max_reply_context: int = 128
    """reply: tokens of the running session before the reply."""
    max_target_tokens: int = 64
    """Longest answer or reply; the rest is cut."""

    output_dir: str = "outputs/train"
    """Folder of the run; must be empty or new unless resuming or overwriting."""
    overwrite_output_dir: bool = False
    """Delete what an earlier run left in output_dir."""
    resume_from_checkpoint: str | None = None
    """latest, or a folder under checkpoints/; latest starts anew if there is none, and says so."""
    save_steps: int = 100
    """Steps between checkpoints; 0 keeps only the final one."""
    save_total_limit: int = 2
    """Checkpoints kept, newest first."""
    logging_steps: int = 10
    """Steps between lines of the log."""
    report_to: Literal["none", "wandb"] = "none"
    """Tracker beside metrics.jsonl; WANDB_MODE is honoured."""
    run_name: str | None = None
    """Name of the run in the tracker."""
    seed: int = 0
    """Seed of data order, distractors, dropout."""
    attn_implementation: str | None = None
    """Attention of the wrapped model during training; null is eager on a CPU (twice as fast on short prompts), else its own."""
    gradient_checkpointing: bool = False
    """Keep no activations inside the wrapped model's layers and compute them again in backward: less memory, more time."""
    shard_base: bool = False
    """Lay the wrapped model's frozen weights over the processes of the launch (FSDP), where one device cannot hold them
    beside the rest."""
    dry_run: bool = False
    """Print sizes, run one step, save nothing. Where the base model is not on this machine, its architecture alone tells
    parameters, memory and steps."""

    def __post_init__(self) -> None:
        """Refuse values no run can use."""
        positive = ("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "logging_steps")
        for name in (*positive, "max_target_tokens", "max_reply_context", "shown_tokens", "save_total_limit"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("distractor_sessions", "tbptt_sessions", "save_steps", "warmup_steps", "lambda_ramp_steps"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, got {getattr(self, name)}")
        rates = (
            "learning_rate",
            "copied_learning_rate",
            "fresh_learning_rate",
            "find_learning_rate",
            "mixing_learning_rate",
            "gate_learning_rate",
        )
        for name in (*rates, "weight_decay", "lambda_ret", "evidence_weight", "entropy_weight"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} must be a number of at least 0, got {getattr(self, name)}")
        if not self.max_grad_norm > 0.0:
            raise UserError(
                f"max_grad_norm must be above 0, got {self.max_grad_norm}; for no clipping give a large number"
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max_steps must be at least 1 or null, got {self.max_steps}")
        if self.also_conversations is not None and self.also_conversations < 1:
            raise UserError(f"also_conversations must be at least 1 or null, got {self.also_conversations}")
        if self.swapped_share and not self.named_share:
            raise UserError("swapped_share asks about people with names: set named_share too")
        if not self.objectives:
            raise UserError("objectives is empty: give answer, reply, cloze or several")
        for name in ("distractor_ramp", "untold_share", "named_share", "swapped_share", "shown_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if not self.generate and "reply" in self.objectives:
            raise UserError(
                "generate is false and objectives has reply: no turn is known to be what a reply is found in"
            )
        if not self.generate and not self.model.semantic:
            raise UserError(
                "generate is false and model.semantic too: without semantic memory there is nothing to find"
            )
