"""``MLMFModel``: any Hugging Face causal LM with working, episodic and semantic memory that is passed in and returned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteriaList
from transformers.utils.generic import ModelOutput

from mlmf import checkpoint
from mlmf.abstention import is_abstention
from mlmf.base_model import load_base, weights_digest
from mlmf.config.model import MLMFConfig
from mlmf.encoder import BaseEncoder, OneAtATime, hidden_states_of
from mlmf.errors import UserError
from mlmf.llm.local import FirstLine
from mlmf.memory.features import SessionFeatures
from mlmf.memory.find import FindScores, QueryKeys
from mlmf.memory.fusion import MemoryBank, ProjectedBank
from mlmf.memory.gate import LAYERS
from mlmf.memory.host import decoder_layers, host_attention
from mlmf.memory.multilayer import MultiLayerMemory
from mlmf.memory.state import MemoryState
from mlmf.recall import Found, Recall, as_bank, as_lines, choose
from mlmf.types import Answer, Query, Session, answer_prompt

IGNORED = -100
"""Label of a token that is not trained on, as everywhere in Hugging Face."""


@dataclass
class MLMFOutput(ModelOutput):
    """A causal LM's output, and what the memory did."""

    loss: Tensor | None = None
    """``L_gen``: mean cross-entropy over the labelled tokens."""
    logits: Tensor | None = None
    """``(B, T, V)``; only the positions that predict a label where ``labelled_only`` was asked for."""
    gates: Tensor | None = None
    """Share of working, episodic and semantic memory in the read, mean over tokens and fusion layers, ``(B, 3)``."""
    gamma: Tensor | None = None
    """The same for every fusion layer and token, ``(B, L, T, 3)``."""
    recalls: list[Recall] | None = None
    """The event nodes read, per row."""
    scores: FindScores | None = None
    """What they were chosen by."""


@dataclass
class _Reading:
    """What the fusion layers read during one call, and the gates they reported on its first pass."""

    banks: list[ProjectedBank]
    gamma: dict[int, Tensor] = field(default_factory=dict)


class MLMFModel(nn.Module):
    """A causal LM whose decoder layers read a :class:`MemoryState` by gated cross-attention.

    Example:
        >>> model = MLMFModel.from_base("tiny-random", MLMFConfig())
        >>> state = model.init_state(batch_size=1)
        >>> state.is_empty()
        True
    """

    lm: PreTrainedModel
    memory: MultiLayerMemory

    def __init__(self, lm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: MLMFConfig) -> None:
        """Wrap a loaded model. See :meth:`from_base` and :meth:`from_pretrained` for the usual ways in."""
        super().__init__()
        layers = decoder_layers(lm)
        self.base_digest = weights_digest(lm)
        self.config, self.tokenizer = config, tokenizer
        self.fusion_layers = config.fusion_layers or _spread(len(layers))
        self.key_layer = len(layers) // 5 if config.key_layer is None else config.key_layer
        for index in (*self.fusion_layers, self.key_layer):
            if not 0 <= index < len(layers):
                raise UserError(f"layer {index} does not exist: {config.base_model} has layers 0 to {len(layers) - 1}")
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            hosts = [host_attention(layers[index], lm) for index in self.fusion_layers]
            self.memory = MultiLayerMemory(config, hosts, lm.config.hidden_size).to(lm.device, lm.dtype)
            self.memory.key_projection.float()
            self.memory.scorer.float()
            self.lm = _with_lora(lm, config)
        self._one_at_a_time = OneAtATime()
        self.encoder = BaseEncoder(lm, tokenizer, layers, self.fusion_layers, self.key_layer, self._base_only)
        self._reading: _Reading | None = None
        for number, index in enumerate(self.fusion_layers):
            # a bound method and no closure: a deep copy of the model fuses its own memory
            layers[index].register_forward_pre_hook(partial(self._fuse, number), with_kwargs=True)

    @classmethod
    def from_base(
        cls,
        name: str,
        config: MLMFConfig | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: str | None = None,
    ) -> MLMFModel:
        """Wrap a base model by known name, path or hub id; its memory is untrained, so it answers as the base does."""
        config = replace(config or MLMFConfig(), base_model=name)
        lm, tokenizer = load_base(name, dtype, device)
        return cls(lm, tokenizer, config).eval()

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        base_model: str | None = None,
        dtype: torch.dtype | None = None,
        device: str | None = None,
    ) -> MLMFModel:
        """Load what :meth:`save_pretrained` wrote.

        Args:
            path: checkpoint folder.
            base_model: where the base model is, if not where its name in the checkpoint leads: a checkpoint never
                names a place on the machine it was trained on.
            dtype: of the weights; by default the base model's.
            device: by default CUDA where there is one.
        """
        config = checkpoint.read_config(path)
        try:
            model = cls.from_base(base_model or config.base_model, config, dtype=dtype, device=device)
        except UserError as error:
            hint = "if it is elsewhere, say where with base_model= (--checkpoint_base in evaluate.py)"
            raise UserError(f"{error} (the base model of checkpoint {path}; {hint})") from error
        checkpoint.load_weights(model, path)
        return model

    def save_pretrained(self, path: str | Path) -> None:
        """Write config, memory weights, adapter, tokenizer and card: everything but the base model and the memories."""
        checkpoint.save(self, path)

    @property
    def device(self) -> torch.device:
        """Where the wrapped model's weights are."""
        return self.lm.device

    @property
    def fingerprint(self) -> str:
        """What a memory state depends on: the base model's weights and the layers its slots were taken from."""
        layers = ",".join(map(str, self.fusion_layers))
        return f"{Path(self.config.base_model).name} {self.base_digest}|layers {layers}|key {self.key_layer}x{self.memory.key_dim}"

    def init_state(self, batch_size: int = 1) -> MemoryState:
        """Empty memories for ``batch_size`` conversations."""
        return self.memory.init_state(batch_size, self.fingerprint, self.device, self.lm.dtype)

    # ------------------------------------------------------------------ writing

    @torch.no_grad()
    def remember(self, sessions: Sequence[Session | None], state: MemoryState) -> MemoryState:
        """Write one session into each conversation; ``None`` leaves a conversation as it is. ``state`` is unchanged."""
        if isinstance(sessions, Session):
            raise TypeError("remember takes a list with one session per conversation: remember([session], state)")
        features = iter(self.encoder.encode([s for s in sessions if s is not None]))
        return self.write(sessions, [next(features) if s is not None else None for s in sessions], state)

    def write(
        self, sessions: Sequence[Session | None], features: Sequence[SessionFeatures | None], state: MemoryState
    ) -> MemoryState:
        """:meth:`remember` with features computed before, as training does from its cache."""
        self._check(state)
        if len(sessions) != state.batch_size:
            raise UserError(f"{len(sessions)} sessions for a state of {state.batch_size} conversations: give one each")
        return self.memory.write(sessions, features, state)

    def forget(
        self,
        state: MemoryState,
        row: int = 0,
        *,
        session: int | None = None,
        entity: str | None = None,
        since: date | None = None,
    ) -> MemoryState:
        """Take out of one conversation all that came from a session, an entity, or some day on; ``state`` is unchanged.

        See :meth:`mlmf.memory.multilayer.MultiLayerMemory.forget` for what goes along and what is proved of the rest.
        """
        self._check(state)
        return self.memory.forget(state, row, session=session, entity=entity, since=since)

    def describe(self, state: MemoryState, row: int = 0) -> str:
        """What one conversation's memory holds, and how far this model opens to it; see :meth:`MemoryState.describe`."""
        self._check(state)
        openings = ", ".join(f"{gate:+.2f}" for gate in self.memory.openings())
        return f"{state.describe(row, self.config.c_s)}\nfusion gates at layers {self.fusion_layers}: {openings}"

    # ------------------------------------------------------------------ reading

    def query_keys(self, ids: Sequence[Sequence[int]]) -> QueryKeys:
        """Keys of queries given as token ids; a leading newline takes the place of the attention sink.

        Of a query that the base model cannot read in one pass with it, the last tokens count. Gradients reach the key
        projection and the weights of tokens, not the base model.
        """
        newline = self.tokenizer("\n", add_special_tokens=False)["input_ids"]
        longest = self.encoder.window - len(newline)
        rows = [newline + list(row)[-longest:] for row in ids]
        size = max(len(row) for row in rows)
        tokens = torch.tensor([row + [0] * (size - len(row)) for row in rows], device=self.device)
        mask = torch.tensor([[i < len(row) for i in range(size)] for row in rows], device=self.device)
        states = self.encoder.states(tokens, [self.key_layer])[self.key_layer]
        skip = len(newline)
        return self.memory.key_projection.query(states[:, skip:], tokens[:, skip:], mask[:, skip:])

    def read(self, query: QueryKeys, state: MemoryState) -> Found:
        """Find, then lay out what the fusion layers will attend to."""
        self._check(state)
        b = query.keys.shape[0]
        if b != state.batch_size and state.batch_size != 1:
            raise UserError(f"{b} queries for a state of {state.batch_size} conversations: give one each")
        if state.is_empty():
            return Found(None, [Recall((), ()) for _ in range(b)], None)
        scores: FindScores = self.memory.scorer(query, state)
        recalls = choose(scores.nodes, state, self.config.recall_nodes)
        bank = as_bank(state, recalls, scores, self.memory.find_weight, self.memory.nothing)
        return Found(bank, recalls, scores)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: MemoryState | None = None,
        labels: Tensor | None = None,
        query: QueryKeys | None = None,
        labelled_only: bool = False,
        **kwargs: Any,
    ) -> MLMFOutput:
        """Run the wrapped model over a prompt (and its answer) with memory.

        Args:
            input_ids: ``(B, T)``.
            attention_mask: ``(B, T)``, 0 on padding of either side.
            state: one memory per row, or a single one for all; ``None`` is the base model.
            labels: ``(B, T)``, -100 where nothing is to be learned.
            query: what to look for in memory; by default the tokens without a label, which are the prompt.
            labelled_only: compute logits only where a label is predicted.
            **kwargs: passed to the wrapped model.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if state is not None and query is None:
            prompt = mask.bool() if labels is None else mask.bool() & (labels == IGNORED)
            query = self.query_keys([row[keep].tolist() for row, keep in zip(input_ids, prompt, strict=True)])
        found = Found(None, [], None) if state is None or query is None else self.read(query, state)
        positions = None
        if labels is not None and labelled_only:
            positions = (labels[:, 1:] != IGNORED).any(0).nonzero().squeeze(-1)
            kwargs["logits_to_keep"] = positions
        kwargs.setdefault("position_ids", (mask.cumsum(-1) - 1).clamp(min=0))
        kwargs.setdefault("use_cache", False)
        with self._reading_from(found.bank) as reading:
            output = self.lm(input_ids=input_ids, attention_mask=mask, **kwargs)
        logits = output.logits
        loss = None
        if labels is not None:
            predicted = logits if positions is not None else logits[:, :-1]
            targets = labels[:, 1:] if positions is None else labels[:, positions + 1]
            wanted = targets != IGNORED
            loss = F.cross_entropy(predicted[wanted].float(), targets[wanted])
        gamma = _stack_gamma(reading)
        gates = None
        if gamma is not None:
            weight = mask[:, None, -gamma.shape[2] :, None].to(gamma.dtype)
            gates = (gamma * weight).sum((1, 2)) / (weight.sum((1, 2)) * gamma.shape[1]).clamp_min(1)
        return MLMFOutput(
            loss=loss, logits=logits, gates=gates, gamma=gamma, recalls=found.recalls, scores=found.scores
        )

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: MemoryState | None = None,
        query: QueryKeys | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """``transformers`` ``generate`` with memory: any decoding strategy, one find for the whole answer.

        Args and returns as there; ``state`` and ``query`` as in :meth:`forward`.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if state is not None and query is None:
            query = self.query_keys([row[keep].tolist() for row, keep in zip(input_ids, mask.bool(), strict=True)])
        bank = None if state is None or query is None else self.read(query, state).bank
        with self._reading_from(bank):
            return self._generate(input_ids, mask, **kwargs)

    def gradient_checkpointing_enable(self) -> None:
        """Keep no activations inside decoder layers; they run again in backward, with the memory they read before."""
        settings = {"use_reentrant": False, "context_fn": self._recompute_contexts}
        self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)

    def _recompute_contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        # where transformers checkpoints a layer together with its hooks, the second run needs the first run's memory
        return nullcontext(), self._set_reading(self._reading)

    def _generate(self, input_ids: Tensor, mask: Tensor, **kwargs: Any) -> Tensor:
        kwargs.setdefault("pad_token_id", self.tokenizer.pad_token_id)
        lm: Any = self.lm
        output: Tensor = lm.generate(input_ids=input_ids, attention_mask=mask, **kwargs)
        return output

    def answer(self, question: str, state: MemoryState, **kwargs: Any) -> Answer:
        """Answer one question about one conversation. See :meth:`answer_all`."""
        return self.answer_all([Query(question)], state, **kwargs)[0]

    @torch.no_grad()
    def answer_all(self, queries: Sequence[Query], state: MemoryState, max_new_tokens: int = 24) -> list[Answer]:
        """Answer questions greedily, up to the end of the first line.

        The prompt is the question alone; with ``recall_tokens`` the recalled turns stand before it as dated lines.

        Args:
            queries: independent questions.
            state: one memory per question, or a single one for all.
            max_new_tokens: the most tokens written per answer.
        """
        if not queries:
            return []
        began = time.perf_counter()
        keys = self.query_keys([self.tokenizer(q.text, add_special_tokens=False)["input_ids"] for q in queries])
        found = self.read(keys, state)
        lines = [as_lines(recall, self.config.recall_tokens, self._count) for recall in found.recalls]
        prompts = [answer_prompt(query, shown) for query, shown in zip(queries, lines, strict=True)]
        ids, mask = self._left_padded(prompts, self.encoder.window - max_new_tokens)
        with self._reading_from(found.bank) as reading:
            tokens = self._generate(
                ids, mask, max_new_tokens=max_new_tokens, do_sample=False,
                stopping_criteria=StoppingCriteriaList([FirstLine(self.tokenizer, ids.shape[1])]),
            )  # fmt: skip
        texts = self.tokenizer.batch_decode(tokens[:, ids.shape[1] :], skip_special_tokens=True)
        texts = [text.strip().split("\n")[0].strip() for text in texts]
        gamma = _stack_gamma(reading)
        shares = None if gamma is None else gamma[:, :, -1].mean(1).tolist()
        seconds = (time.perf_counter() - began) / len(queries)
        return [
            Answer(
                text=text,
                abstained=is_abstention(text),
                recalled=found.recalls[i].turn_ids,
                recalled_lines=found.recalls[i].lines,
                gates={} if shares is None else dict(zip(LAYERS, shares[i], strict=True)),
                tokens_read=int(mask[i].sum()),
                tokens_written=self._count(text),
                seconds=seconds,
            )
            for i, text in enumerate(texts)
        ]

    # ------------------------------------------------------------------ inside

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _left_padded(self, prompts: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
        """Ids and mask of prompts, each cut to its last ``longest`` tokens."""
        rows = [self.tokenizer(prompt, add_special_tokens=False)["input_ids"][-longest:] for prompt in prompts]
        size = max(map(len, rows))
        ids = torch.tensor([[self.tokenizer.pad_token_id] * (size - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (size - len(row)) + [1] * len(row) for row in rows])
        return ids.to(self.device), mask.to(self.device)

    def _check(self, state: MemoryState) -> None:
        if state.fingerprint != self.fingerprint:
            raise UserError(
                f"this memory state belongs to {state.fingerprint!r}, the model is {self.fingerprint!r}: "
                "remember the sessions again with this model"
            )

    @contextmanager
    def _base_only(self) -> Iterator[None]:
        """The frozen base model alone: no adapter, no memory."""
        # peft's own context manager inspects every adapter on each use, which costs a fifth of reading a session
        adapters: Any = self.lm.base_model if isinstance(self.lm, PeftModel) else None
        with self._set_reading(None):
            if adapters is not None:
                adapters.disable_adapter_layers()
            try:
                yield
            finally:
                if adapters is not None:
                    adapters.enable_adapter_layers()

    @contextmanager
    def _reading_from(self, bank: MemoryBank | None) -> Iterator[_Reading | None]:
        """Let the fusion layers read ``bank`` for the calls made inside."""
        reading = None if bank is None else _Reading(self.memory.project(bank))
        with self._set_reading(reading):
            yield reading

    @contextmanager
    def _set_reading(self, reading: _Reading | None) -> Iterator[None]:
        with self._one_at_a_time:
            before, self._reading = self._reading, reading
            try:
                yield
            finally:
                self._reading = before

    def _fuse(self, number: int, _: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        """The hook that fuses memory into the input of one decoder layer."""
        reading = self._reading
        if reading is None:
            return None
        fused, gamma = self.memory.fusions[number](hidden_states_of(args, kwargs), reading.banks[number])
        reading.gamma.setdefault(number, gamma)
        if args:
            return (fused, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": fused}


def _spread(depth: int, count: int = 5) -> list[int]:
    """Fusion layers of a model of ``depth``: ``count`` from a quarter of the way to four fifths (8, 12, ..., 24 of 30)."""
    first, last = round(depth * 4 / 15), round(depth * 4 / 5)
    return sorted({round(first + (last - first) * i / (count - 1)) for i in range(count)})


def _stack_gamma(reading: _Reading | None) -> Tensor | None:
    return None if reading is None else torch.stack([reading.gamma[i] for i in sorted(reading.gamma)], 1)


def _with_lora(lm: PreTrainedModel, config: MLMFConfig) -> PreTrainedModel:
    """Adapters on every linear layer of the decoder blocks, in the model's dtype; the base is frozen either way."""
    lm.requires_grad_(False)
    settings = config.lora
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
