"""``MLMFModel``: any Hugging Face causal LM with working, episodic and semantic memory that is passed in and returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf import answering, checkpoint
from mlmf.adapters import Adapters, with_lora
from mlmf.base_model import load_base, weights_digest
from mlmf.config.model import MemorySettings, MLMFConfig
from mlmf.encoder import BaseEncoder
from mlmf.errors import UserError
from mlmf.hooks import FusionHooks
from mlmf.memory.features import SessionFeatures
from mlmf.memory.fusion import MemoryBank
from mlmf.memory.host import decoder_layers, host_attention, layers_read
from mlmf.memory.keys import QueryKeys
from mlmf.memory.multilayer import MultiLayerMemory
from mlmf.memory.state import MemoryState
from mlmf.output import IGNORED, MLMFOutput, labelled_loss, mean_gates, predicting_positions
from mlmf.queries import QueryReader
from mlmf.recall import Found, find
from mlmf.types import Answer, Query, Session

__all__ = ["IGNORED", "MLMFModel", "MLMFOutput"]


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
        self.base_digest = weights_digest(lm.named_parameters())
        self.config, self.tokenizer = config, tokenizer
        self.fusion_layers, self.key_layer = layers_read(config, len(layers))
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            hosts = [host_attention(layers[index], lm) for index in self.fusion_layers]
            vocab = lm.config.get_text_config().vocab_size
            self.memory = MultiLayerMemory(config, hosts, lm.config.hidden_size, vocab).to(lm.device, lm.dtype)
            self.memory.key_projection.float()
            self.memory.codec.float()
            self.memory.scorer.float()
            first = config.lora.first_layer
            self.lm = with_lora(lm, config.lora, layers, min(self.fusion_layers) if first is None else first)
        self.adapters = Adapters(self.lm, config.lora.merge)
        self.hooks = FusionHooks(self.memory, layers, self.fusion_layers)
        self.encoder = BaseEncoder(lm, tokenizer, layers, self.fusion_layers, self.key_layer, self._base_only)
        self.queries = QueryReader(self.encoder)

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
        memory: MemorySettings | None = None,
    ) -> MLMFModel:
        """Load what :meth:`save_pretrained` wrote.

        Args:
            path: checkpoint folder.
            base_model: where the base model is, if not where its name in the checkpoint leads: a checkpoint never
                names a place on the machine it was trained on.
            dtype: of the weights; by default the base model's.
            device: by default CUDA where there is one.
            memory: settings to change, such as the capacity.
        """
        config = replace(checkpoint.read_config(path), **(memory or MemorySettings()).changed)
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
    def features_fingerprint(self) -> str:
        """What the features of a session depend on: the base model's weights, the layers read, and the codec."""
        layers, codec = ",".join(map(str, self.fusion_layers)), self.memory.codec
        codes = f"{codec.code_width} {weights_digest(codec.named_buffers())}"
        base = f"{Path(self.config.base_model).name} {self.base_digest}"
        return f"{base}|layers {layers}|codes {codes}|key {self.key_layer}"

    @property
    def fingerprint(self) -> str:
        """What a memory state depends on: the same, and the projection of keys."""
        keys = self.memory.key_projection.state_dict()
        return f"{self.features_fingerprint}x{self.memory.key_dim} {weights_digest(keys.items())}"

    def init_state(self, batch_size: int = 1) -> MemoryState:
        """Empty memories for ``batch_size`` conversations."""
        return self.memory.init_state(batch_size, self.fingerprint, self.device, self.lm.dtype)

    # ------------------------------------------------------------------ writing

    @torch.no_grad()
    def features(self, sessions: Sequence[Session]) -> list[SessionFeatures]:
        """Sessions read by the frozen base model, their states encoded to codes: what :meth:`write` takes."""
        encode = self.memory.codec.encode
        return [
            SessionFeatures(encode(read.states), read.keys, read.tokens, read.pieces)
            for read in self.encoder.encode(sessions)
        ]

    @torch.no_grad()
    def remember(self, sessions: Sequence[Session | None], state: MemoryState) -> MemoryState:
        """Write one session into each conversation; ``None`` leaves a conversation as it is. ``state`` is unchanged."""
        if isinstance(sessions, Session):
            raise TypeError("remember takes a list with one session per conversation: remember([session], state)")
        features = iter(self.features([s for s in sessions if s is not None]))
        return self.write(sessions, [next(features) if s is not None else None for s in sessions], state)

    def write(
        self, sessions: Sequence[Session | None], features: Sequence[SessionFeatures | None], state: MemoryState
    ) -> MemoryState:
        """:meth:`remember` with features computed before, as training does from its cache."""
        self._check(state)
        if len(sessions) != state.batch_size:
            raise UserError(f"{len(sessions)} sessions for a state of {state.batch_size} conversations: give one each")
        for row, session in enumerate(sessions):
            if session is not None and session.index in (held := state.held_sessions(row)):
                raise UserError(
                    f"session {session.index} is in the memory of conversation {row} already: forget it first, or give the new "
                    f"one an index of its own, such as {max(held) + 1}"
                )
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
        return f"{state.describe(row, self.config.c_s, self.config.c_m)}\nfusion gates at layers {self.fusion_layers}: {openings}"

    # ------------------------------------------------------------------ reading

    def query_keys(self, ids: Sequence[Sequence[int]]) -> QueryKeys:
        """Keys of queries given as token ids; see :class:`mlmf.queries.QueryReader`.

        Gradients reach the key projection and the weights of tokens, not the base model.
        """
        texts = self.tokenizer.batch_decode([list(one) for one in ids], skip_special_tokens=True)
        return self.memory.key_projection.query(*self.queries(ids), texts)

    def read(self, query: QueryKeys, state: MemoryState) -> Found:
        """Find, then lay out what the fusion layers will attend to."""
        self._check(state)
        b = query.keys.shape[0]
        if b != state.batch_size and state.batch_size != 1:
            raise UserError(f"{b} queries for a state of {state.batch_size} conversations: give one each")
        return find(query, state, self.memory, self.config.recall_nodes)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: MemoryState | None = None,
        labels: Tensor | None = None,
        query: QueryKeys | None = None,
        found: Found | None = None,
        labelled_only: bool = False,
        **kwargs: Any,
    ) -> MLMFOutput:
        """Run the wrapped model over a prompt (and its answer) with memory.

        Args:
            input_ids: ``(B, T)``.
            attention_mask: ``(B, T)``, 0 on padding of either side; with ``past_key_values`` of the cached tokens too.
            state: one memory per row, or a single one for all; ``None`` reads no memory, as an empty one.
            labels: ``(B, T)``, -100 where nothing is to be learned.
            query: what to look for in memory; by default the tokens without a label, which are the prompt.
            found: what :meth:`read` found, where that was done before.
            labelled_only: compute logits only where a label is predicted.
            **kwargs: passed to the wrapped model.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if found is None and state is not None:
            if query is None and mask.shape != input_ids.shape:
                raise UserError(
                    "a cached step does not show the prompt that memory is to be asked with: give query or found "
                    "(model.read(model.query_keys([ids]), state)), or use generate"
                )
            prompt = mask.bool() if labels is None else mask.bool() & (labels == IGNORED)
            found = self.read(query or self._query(input_ids, prompt), state)
        found = found or Found(None, [], None)
        positions = None
        if labels is not None and labelled_only:
            positions = predicting_positions(labels)
            kwargs["logits_to_keep"] = positions
        # of a cached step the mask covers what the cache holds too
        kwargs.setdefault("position_ids", (mask.cumsum(-1) - 1).clamp(min=0)[:, -input_ids.shape[1] :])
        kwargs.setdefault("use_cache", False)
        with self.hooks.reading_from(found.bank) as reading, self._weights():
            output = self.lm(input_ids=input_ids, attention_mask=mask, **kwargs)
        loss = None if labels is None else labelled_loss(output.logits, labels, positions)
        gamma = None if reading is None else reading.stacked_gamma()
        gates = None if gamma is None else mean_gates(gamma, mask)
        return MLMFOutput(
            loss=loss,
            logits=output.logits,
            gates=gates,
            gamma=gamma,
            recalls=found.recalls,
            scores=found.scores,
            past_key_values=output.get("past_key_values"),
        )

    def _query(self, input_ids: Tensor, prompt: Tensor) -> QueryKeys:
        return self.query_keys([row[keep].tolist() for row, keep in zip(input_ids, prompt, strict=True)])

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
        bank = None if state is None else self.read(query or self._query(input_ids, mask.bool()), state).bank
        return self.decode(input_ids, mask, bank, **kwargs)[0]

    @torch.no_grad()
    def decode(
        self, input_ids: Tensor, attention_mask: Tensor, bank: MemoryBank | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """:meth:`generate` with what to read already found: its tokens, and gamma of the prompt ``(B, L, T, 3)``."""
        kwargs.setdefault("pad_token_id", self.tokenizer.pad_token_id)
        lm: Any = self.lm
        with self.hooks.reading_from(bank) as reading, self._weights():
            tokens: Tensor = lm.generate(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        return tokens, None if reading is None else reading.stacked_gamma()

    def gradient_checkpointing_enable(self) -> None:
        """Keep no activations inside decoder layers; they run again in backward, with the memory they read before."""
        settings = {"use_reentrant": False, "context_fn": self.hooks.recompute_contexts}
        self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)

    def answer(self, question: str, state: MemoryState, **kwargs: Any) -> Answer:
        """Answer one question about one conversation. See :meth:`answer_all`."""
        return self.answer_all([Query(question)], state, **kwargs)[0]

    def answer_all(self, queries: Sequence[Query], state: MemoryState, max_new_tokens: int = 24) -> list[Answer]:
        """Answer questions greedily, up to the end of the first line. See :func:`mlmf.answering.answer_all`."""
        return answering.answer_all(self, queries, state, max_new_tokens)

    def merge_adapters(self) -> None:
        """Answer with the adapters added into a second copy of the weights they adapt: as fast as the base model.

        This happens by itself at the first call in eval mode without gradient, unless ``lora.merge`` is false, and
        again after a weight has changed (a change through ``.data`` goes unseen: call this then). Sessions and queries
        are read with the frozen base's own weights all along; checkpoints and training know nothing of the copy.
        """
        with self.hooks.reading_from(None):
            self.adapters.merging = True
            self.adapters.merge()

    def unmerge_adapters(self) -> None:
        """Free the copy, and from now on answer with the adapters beside the weights."""
        with self.hooks.reading_from(None):
            self.adapters.merging = False
            self.adapters.release()

    def train(self, mode: bool = True) -> MLMFModel:
        """As everywhere in torch; training frees the merged weights."""
        if mode:
            self.adapters.release()
        return super().train(mode)

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _base_only(self) -> Iterator[None]:
        with self.hooks.reading_from(None), self.adapters.base_only():
            yield

    def _weights(self) -> AbstractContextManager[None]:
        inferring = not self.training and not torch.is_grad_enabled()
        return self.adapters.merged() if inferring else nullcontext()

    def _check(self, state: MemoryState) -> None:
        if state.fingerprint != self.fingerprint:
            raise UserError(
                f"this memory state belongs to {state.fingerprint!r}, the model is {self.fingerprint!r}: "
                "remember the sessions again with this model"
            )
