"""Settings of the memory model. Saved as ``config.json`` in every checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mlmf.errors import UserError

AlphaMode = Literal["routed", "scalar", "per_slot"]


@dataclass
class MemorySettings:
    """Settings of a trained memory that may still be changed, since no weight depends on them; null keeps its own."""

    c_s: int | None = None
    """Capacity of semantic memory, in event nodes."""
    c_m: int | None = None
    """Capacity of semantic memory, in token slots."""
    slots: Literal["model", "int8"] | None = None
    """How the semantic layer stores codes and keys."""
    recall_nodes: int | None = None
    """How many event nodes a question reads."""
    recall_tokens: int | None = None
    """Budget of recalled text put into the prompt; 0 is the pure tensor memory."""
    abstain_from: float | None = None
    """Probability of the abstention from which it is said; text systems that the checkpoint answers for keep its own."""

    @property
    def changed(self) -> dict[str, Any]:
        """Those that are given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class LoraSettings:
    """Low-rank adapters on the wrapped model (peft)."""

    r: int = 16
    """Rank. 0 trains the memory alone and leaves the wrapped model untouched."""
    lora_alpha: int = 32
    """Scale of the update is lora_alpha / r."""
    lora_dropout: float = 0.0
    """Dropout on the adapter's input."""
    target_modules: list[str] | None = None
    """Names of the linear layers to adapt; null adapts every linear layer of the decoder blocks."""
    first_layer: int | None = None
    """Lowest decoder block that is adapted; null is the lowest fusion layer, 0 adapts them all."""
    merge: bool = True
    """Answer with the adapters merged into a second copy of the adapted weights, which is as fast as the base model;
    false saves that memory."""

    def __post_init__(self) -> None:
        """Refuse values no adapter can be built from."""
        if self.r < 0:
            raise UserError(f"lora.r must be at least 0 (no adapters), got {self.r}")
        if self.first_layer is not None and self.first_layer < 0:
            raise UserError(f"lora.first_layer must be at least 0 or null, got {self.first_layer}")
        if self.lora_alpha < 1:
            raise UserError(f"lora.lora_alpha must be at least 1, got {self.lora_alpha}")
        if not 0.0 <= self.lora_dropout < 1.0:
            raise UserError(f"lora.lora_dropout must be in [0, 1), got {self.lora_dropout}")


@dataclass
class MLMFConfig:
    """The multi-layer memory of equations (4)-(10)."""

    base_model: str = "smollm2-135m"
    """Known name, local path or Hugging Face id of the causal LM that is wrapped."""
    fusion_layers: list[int] | None = None
    """Decoder layers before which the memory is read (eq. 8); null spreads five over the upper three quarters."""
    key_layer: int | None = None
    """Decoder layer whose input states serve as keys for finding; null takes a fifth of the depth."""
    key_dim: int = 128
    """Width of the keys."""
    code_dim: int = 512
    """Width of a slot: of the states of a token at the fusion layers are kept the principal components of what is read,
    two bytes each in bfloat16 and one with slots: int8. 0 keeps the states whole (2880 numbers a token of SmolLM2-135M).
    Of the variance of its keys and values 512 keep 95 % on LOCCO users they were not made for (``make bench``)."""
    slots: Literal["model", "int8"] = "model"
    """How the semantic layer stores codes and keys: in the model's dtype, or rounded to eight bits, in about half the
    space; of that variance, rounding loses less than 0.1 %. Rounded codes and keys pass no gradient."""
    k: int = 32
    """Working memory (eq. 4): how many of the last tokens of a session are kept."""
    c_w: int = 32
    """Capacity of working memory, in token slots."""
    c_e: int = 16
    """Capacity of episodic memory, in slots."""
    c_s: int = 1024
    """Capacity of semantic memory, in event nodes: turns and, for each session with a turn kept, its date line."""
    c_m: int = 11776
    """Capacity of semantic memory in token slots, over all nodes. With the defaults a full memory takes 15.8 MB in
    bfloat16 and 8.3 MB with slots: int8."""
    node_tokens: int = 64
    """Token slots kept per event node; longer turns keep their first ones."""
    alpha: float = 0.9
    """Episodic decay (eq. 5): the share of the old slot that survives a write; per_slot learns its own and ignores it."""
    alpha_mode: AlphaMode = "routed"
    """scalar: the paper's form, every slot decays at every session; per_slot: so too, each slot at a rate of its own,
    learned from time scales between 1 and 128 sessions; routed: only the slots a session writes to decay."""
    beta: float = 20.0
    """Sharpness of the layer gate (eq. 7) at the start; learned."""
    epsilon: float = 1.0
    """Bound on the entropy of the layer gate, in nats (alg. 25); ln 3 = 1.0986 never binds."""
    entities: Literal["rules", "spacy"] = "rules"
    """What finds the names and things a turn mentions: the built-in rules for English, or spaCy (extra ``spacy``)."""
    tau_s: float = 0.97
    """Two event nodes whose embeddings have a cosine above this are near-duplicates: the older is superseded."""
    recall_nodes: int = 8
    """How many event nodes a question reads."""
    recall_tokens: int = 0
    """Budget of recalled text put into the prompt; 0 is the pure tensor memory."""
    recall_neighbours: int = 0
    """Turns on either side of a recalled one that are shown too, where the budget allows."""
    abstain_from: float | None = None
    """Probability of the abstention from which it is said: 0.5 where a wrong answer costs as much as a wrong refusal, less
    where it costs more. null says what is likeliest word by word, which refuses where the abstention is likelier than every
    single first word, and so too where it is less likely than all answers together."""
    working: bool = True
    """Ablation: keep the working layer."""
    episodic: bool = True
    """Ablation: keep the episodic layer."""
    semantic: bool = True
    """Ablation: keep the semantic layer."""
    versions: bool = True
    """Ablation: lower the find score of turns that newer ones like them answer as well."""
    nothing: bool = True
    """Ablation: let having found nothing compete with the turns that are read."""
    whose: bool = True
    """Ablation: mark what is read as said by somebody whom the question names, or by others."""
    gating: bool = True
    """Ablation: learned layer gate; false weights every non-empty layer equally."""
    retention: bool = True
    """Ablation: the retention loss (eq. 9); false trains without it, whatever its weight."""
    entropy: bool = True
    """Ablation: the entropy bound (alg. 25-26); false neither sharpens the gate nor penalises it."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Adapters on the wrapped model."""
    seed: int = 0
    """Seed of the memory's random initial weights."""

    def __post_init__(self) -> None:
        """Refuse values no model can be built from."""
        at_least_one = ("key_dim", "k", "c_w", "c_e", "node_tokens", "recall_nodes")
        for name in at_least_one:
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.c_s < 2:
            raise UserError(f"c_s must be at least 2, a turn and the date line of its session, got {self.c_s}")
        if self.c_m < 2 * self.node_tokens:
            raise UserError(
                f"c_m must be at least twice node_tokens, a turn and the date line of its session, got {self.c_m} "
                f"with node_tokens {self.node_tokens}"
            )
        if self.code_dim < 0:
            raise UserError(f"code_dim must be at least 0 (states are kept whole), got {self.code_dim}")
        if self.slots == "int8" and self.code_dim == 0:
            raise UserError("slots is int8 and code_dim is 0: only codes can be rounded to eight bits; set code_dim")
        if not 0.0 <= self.alpha < 1.0:
            raise UserError(f"alpha must be in [0, 1), got {self.alpha}")
        if not self.beta > 0.0:
            raise UserError(f"beta must be above 0, got {self.beta}. For equal weights set gating to false")
        if not self.epsilon >= 0.0:
            raise UserError(f"epsilon must be at least 0 nats, got {self.epsilon}")
        if self.fusion_layers is not None and len(set(self.fusion_layers)) != len(self.fusion_layers):
            raise UserError(f"fusion_layers names a layer twice: {self.fusion_layers}")
        for name in ("recall_tokens", "recall_neighbours"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.abstain_from is not None and not 0.0 <= self.abstain_from <= 1.0:
            raise UserError(f"abstain_from must be in [0, 1] or null, got {self.abstain_from}")
        if not (self.working or self.episodic or self.semantic):
            raise UserError("working, episodic and semantic are all false: that is the base model; keep at least one")
