"""Greedy decoding in batches with a Hugging Face causal LM, for :mod:`mlmf.llm.local` and :mod:`mlmf.llm.local_chat`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
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

# transformers renamed this argument of every model within its fifth major version
_CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote after one row of ids."""

    text: str
    """As decoded, up to the id that ended it."""
    tokens: int
    """How many were written, the one that ended it included."""


class GreedyDecoder:
    """Continues rows of token ids.

    Rows are sorted by length and padded on the left. A prefix shared by many rows (a whole conversation) is read once
    and its key-value cache is copied for each of them; the cache of the latest prefix is kept, because the questions
    about a conversation come in several batches.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, max_batch_tokens: int) -> None:
        """Use a loaded model.

        Args:
            model: the causal LM; it is put into evaluation mode.
            tokenizer: its tokenizer.
            max_batch_tokens: bound on rows times tokens per row of one batch, which bounds the size of its cache.
        """
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

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self.tokenizer(text, add_special_tokens=False).input_ids)

    @torch.inference_mode()
    def write(
        self, rows: Sequence[list[int]], max_new_tokens: int, *, shared: int = 0, one_line: bool = False
    ) -> list[Written]:
        """Continue every row, with at least one token.

        Args:
            rows: token ids of independent prompts; the results come in the same order and do not depend on the grouping.
            max_new_tokens: the most tokens written per row.
            shared: how many ids at the start of all rows are the same and are to be read once.
            one_line: stop at the first line break after something was written.

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
            found = self._generate([rows[index] for index in batch], shared, max_new_tokens, one_line)
            written.update(zip(batch, map(self._decode, found), strict=True))
        return [written[index] for index in range(len(rows))]

    def _batches(self, rows: Sequence[list[int]], max_new_tokens: int) -> Iterator[list[int]]:
        """Row numbers, longest first, so that a batch that does not fit into memory fails at once."""
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        while order:
            size = max(1, self.max_batch_tokens // (len(rows[order[0]]) + max_new_tokens))
            yield order[:size]
            order = order[size:]

    def _generate(self, rows: list[list[int]], shared: int, max_new_tokens: int, one_line: bool) -> list[list[int]]:
        end_ids = self._end_ids()
        width = max(len(row) for row in rows)
        # padding stands between the shared prefix and the rest; without a prefix that is plain left padding
        padding = [width - len(row) for row in rows]
        ids = [row[:shared] + [end_ids[0]] * pad + row[shared:] for row, pad in zip(rows, padding, strict=True)]
        mask = [[1] * shared + [0] * pad + [1] * (width - shared - pad) for pad in padding]
        cache = self._prefill(rows[0][:shared], len(rows)) if shared else None
        output = self.model.generate(
            input_ids=torch.tensor(ids, device=self.model.device),
            attention_mask=torch.tensor(mask, device=self.model.device),
            generation_config=_greedy(max_new_tokens, end_ids),
            stopping_criteria=StoppingCriteriaList([FirstLine(self.tokenizer, width)] if one_line else []),
            **{_CACHE_ARGUMENT: cache},
        )
        return [row[width:] for row in output.tolist()]

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

    def _decode(self, ids: list[int]) -> Written:
        end_ids = set(self._end_ids())
        kept = next((position for position, token in enumerate(ids) if token in end_ids), len(ids))
        text = str(self.tokenizer.decode(ids[:kept], skip_special_tokens=True))
        return Written(text, min(kept + 1, len(ids)))


class FirstLine(StoppingCriteria):
    """Ends a row at the first line break after something was written."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_width: int) -> None:
        """Watch what is written after the first ``prompt_width`` ids of each row."""
        self.tokenizer = tokenizer
        self.prompt_width = prompt_width

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """Which rows are finished, ``(B,)``."""
        texts = self.tokenizer.batch_decode(input_ids[:, self.prompt_width :])
        return torch.tensor(["\n" in text.lstrip() for text in texts], device=input_ids.device)


def _greedy(max_new_tokens: int, end_ids: list[int]) -> GenerationConfig:
    """Greedy decoding, spelt out so that a model's own sampling habits do not leak in."""
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        # outside its chat template an instruct model likes to end at once: 7 of 32 empty answers, 0.06 of F1 lost
        min_new_tokens=1,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        eos_token_id=end_ids,
        pad_token_id=end_ids[0],
    )
