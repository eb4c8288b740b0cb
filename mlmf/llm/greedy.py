"""Greedy decoding in batches with a Hugging Face causal LM, for :mod:`mlmf.llm.local` and :mod:`mlmf.llm.local_chat`."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.cache_utils import Cache, DynamicCache

from mlmf.llm.abstaining import abstaining
from mlmf.llm.guided import Guide, can_guide

# transformers renamed this argument of every model within its fifth major version
_CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
_STEPS = 4
"""Tokens between two looks at which rows have ended."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote after one row of ids."""

    text: str
    """As decoded, up to the id that ended it."""
    tokens: int
    """How many were written, the one that ended it included."""
    seconds_decoding: float = field(default=0.0, compare=False)
    """Of the batch, writing all tokens but the first, over the rows in it."""


class GreedyDecoder:
    """Continues rows of token ids.

    Rows are sorted by length and padded on the left. A prefix shared by many rows (a whole conversation) is read once
    and its key-value cache is copied for each of them; the cache of the latest prefix is kept, because the questions
    about a conversation come in several batches. Rows that have ended leave the batch every few tokens: a step costs about
    as much as the keys and values it reads.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_tokens: int,
        abstain_from: float | None = None,
    ) -> None:
        """Use a loaded model.

        Args:
            model: the causal LM; it is put into evaluation mode.
            tokenizer: its tokenizer.
            max_batch_tokens: bound on rows times tokens per row of one batch, which bounds the size of its cache.
            abstain_from: see :class:`mlmf.config.model.MLMFConfig`.
        """
        self.abstain_from = abstain_from
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.max_batch_tokens = max_batch_tokens
        self._prefix: tuple[list[int], Cache] | None = None

    @property
    def context_window(self) -> int:
        """The positions the model was built for, or the tokenizer's limit where the model names none."""
        config = self.model.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length)

    @property
    def can_share_a_prefix(self) -> bool:
        """Whether the model's cache is plain: a window or a recurrent state would count the padding behind it as text."""
        cache = DynamicCache(config=self.model.config)
        return not any(cache.is_sliding) and not any(cache.is_linear)

    @property
    def can_be_guided(self) -> bool:
        """Whether what is written can be held to a schema."""
        return can_guide(self.tokenizer)

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self.tokenizer(text, add_special_tokens=False).input_ids)

    @torch.inference_mode()
    def write(
        self,
        rows: Sequence[list[int]],
        max_new_tokens: int,
        *,
        shared: int = 0,
        one_line: bool = False,
        schema: type[BaseModel] | None = None,
    ) -> list[Written]:
        """Continue every row, with at least one token.

        Args:
            rows: token ids of independent prompts; the results come in the same order and do not depend on the grouping.
            max_new_tokens: the most tokens written per row.
            shared: how many ids at the start of all rows are the same and are to be read once.
            one_line: stop at the first line break after something was written.
            schema: hold every row to JSON of it, where that :attr:`can_be_guided`.

        Raises:
            ValueError: a row and ``max_new_tokens`` together exceed ``context_window``.
        """
        for row in rows:
            if len(row) + max_new_tokens > self.context_window:
                raise ValueError(
                    f"a prompt of {len(row)} tokens and {max_new_tokens} new ones exceed the model's window of "
                    f"{self.context_window}"
                )
        written: dict[int, Written] = {}
        for batch in self._batches(rows, max_new_tokens):
            found, seconds = self._generate([rows[index] for index in batch], shared, max_new_tokens, one_line, schema)
            written.update(
                (index, self._decode(ids, one_line, seconds)) for index, ids in zip(batch, found, strict=True)
            )
        return [written[index] for index in range(len(rows))]

    def _batches(self, rows: Sequence[list[int]], max_new_tokens: int) -> Iterator[list[int]]:
        """Row numbers, longest first, so that a batch that does not fit into memory fails at once."""
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        while order:
            size = max(1, self.max_batch_tokens // (len(rows[order[0]]) + max_new_tokens))
            yield order[:size]
            order = order[size:]

    def _generate(
        self,
        rows: list[list[int]],
        shared: int,
        max_new_tokens: int,
        one_line: bool,
        schema: type[BaseModel] | None,
    ) -> tuple[list[list[int]], float]:
        """The ids written after each row, and the seconds of decoding over the rows."""
        end_ids = self._end_ids()
        width = max(len(row) for row in rows)
        # padding stands between the shared prefix and the rest; without a prefix that is plain left padding
        padding = [width - len(row) for row in rows]
        padded = [row[:shared] + [end_ids[0]] * pad + row[shared:] for row, pad in zip(rows, padding, strict=True)]
        kept = [[1] * shared + [0] * pad + [1] * (width - shared - pad) for pad in padding]
        ids, mask = (torch.tensor(values, device=self.model.device) for values in (padded, kept))
        can_drop = self.can_share_a_prefix
        cache = self._prefill(rows[0][:shared], len(rows)) if shared else None
        if cache is None and can_drop:
            cache = DynamicCache(config=self.model.config)
        clock = DecodingClock()
        watching = [clock, FirstLine(self.tokenizer, width)] if one_line else [clock]
        guided = self._guide.start(schema, len(rows), width) if schema and self._guide else None
        processors = abstaining(self.abstain_from, self.tokenizer, width)
        if guided:
            processors.append(guided)
        alive = list(range(len(rows)))
        written: list[list[int]] = [[] for _ in rows]
        while alive and ids.shape[1] < width + max_new_tokens:
            left = width + max_new_tokens - ids.shape[1]
            ids = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=_greedy(
                    min(left, _STEPS) if can_drop else left, end_ids, is_first=left == max_new_tokens
                ),
                stopping_criteria=StoppingCriteriaList(watching),
                logits_processor=processors,
                **{_CACHE_ARGUMENT: cache},
            )
            for row, found in zip(alive, ids[:, width:].tolist(), strict=True):
                written[row] = found
            going = [place for place, row in enumerate(alive) if not self._has_ended(written[row], one_line)]
            if not can_drop or not going:
                break
            mask = F.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1)
            if len(going) < len(alive):
                assert cache is not None
                cache.batch_select_indices(torch.tensor(going, device=self.model.device))
                alive, ids, mask = [alive[place] for place in going], ids[going], mask[going]
                if guided:
                    guided.keep(going)
        return written, clock.seconds / len(rows)

    @cached_property
    def _guide(self) -> Guide | None:
        if not self.can_be_guided:
            return None
        vocab_size = self.model.get_output_embeddings().weight.shape[0]
        return Guide(self.tokenizer, vocab_size=vocab_size, end_ids=self._end_ids())

    def _has_ended(self, ids: list[int], one_line: bool) -> bool:
        if set(ids) & set(self._end_ids()):
            return True
        return one_line and has_line(str(self.tokenizer.decode(ids)))

    def _prefill(self, prefix: list[int], copies: int) -> Cache:
        if self._prefix is None or self._prefix[0] != prefix:
            ids = torch.tensor([prefix], device=self.model.device)
            cache = DynamicCache(config=self.model.config)
            self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **{_CACHE_ARGUMENT: cache})
            self._prefix = (prefix, cache)
        expanded = copy.deepcopy(self._prefix[1])
        expanded.batch_repeat_interleave(copies)
        return expanded

    def _end_ids(self) -> list[int]:
        """Every id that ends an answer: the model's own list, which may be longer than the tokenizer's single one."""
        configured = self.model.generation_config.eos_token_id
        listed = configured if isinstance(configured, list) else [configured]
        ids = [token for token in [*listed, self.tokenizer.eos_token_id] if token is not None]
        return list(dict.fromkeys(ids))

    def _decode(self, ids: list[int], one_line: bool, seconds: float) -> Written:
        end_ids = set(self._end_ids())
        kept = next((position for position, token in enumerate(ids) if token in end_ids), len(ids))
        text = str(self.tokenizer.decode(ids[:kept], skip_special_tokens=True))
        # behind a line break that ended the row stands padding, which looks like the end of a text
        count = kept if one_line and has_line(text) else min(kept + 1, len(ids))
        return Written(text, count, seconds)


class FirstLine(StoppingCriteria):
    """Ends a row at the first line break after something was written."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_width: int) -> None:
        """Watch what is written after the first ``prompt_width`` ids of each row."""
        self.tokenizer = tokenizer
        self.prompt_width = prompt_width

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """Which rows are finished, ``(B,)``."""
        texts = self.tokenizer.batch_decode(input_ids[:, self.prompt_width :])
        return torch.tensor([has_line(text) for text in texts], device=input_ids.device)


class DecodingClock(StoppingCriteria):
    """Ends nothing: it measures the time from the first token to the last one, however often ``generate`` is called."""

    def __init__(self) -> None:
        """Wait for the first token."""
        self._first: float | None = None
        self.seconds = 0.0

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """No row is finished, ``(B,)``."""
        # on a GPU the token is not there before somebody asks for it
        now = (input_ids[:, -1].tolist(), time.perf_counter())[1]
        self._first = now if self._first is None else self._first
        self.seconds = now - self._first
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def has_line(text: str) -> bool:
    """Whether a line has ended after something was written."""
    return "\n" in text.lstrip()


def _greedy(max_new_tokens: int, end_ids: list[int], *, is_first: bool) -> GenerationConfig:
    """Greedy decoding, spelt out so that a model's own sampling habits do not leak in."""
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        # outside its chat template an instruct model likes to end at once: 7 of 32 empty answers, 0.06 of F1 lost
        min_new_tokens=1 if is_first else 0,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        eos_token_id=end_ids,
        pad_token_id=end_ids[0],
    )
