"""Decoding held to a JSON schema, through ``llguidance``: at each token what would leave the schema is ruled out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerBase, PreTrainedTokenizerFast


def can_guide(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the extra ``guided`` is installed, and the tokenizer is of a kind that it can read."""
    return isinstance(tokenizer, PreTrainedTokenizerFast) and find_spec("llguidance") is not None


class Guide:
    """Rules of what a model may write, for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, vocab_size: int, end_ids: Sequence[int]) -> None:
        """Read the tokenizer, which takes a second.

        Args:
            tokenizer: one that :func:`can_guide`.
            vocab_size: tokens that the model scores, which may be more than the tokenizer knows.
            end_ids: what ends a reply.
        """
        from llguidance.hf import from_tokenizer

        self._vocab_size, self._end_ids = vocab_size, list(end_ids)
        fast: Any = tokenizer
        self._tokenizer = from_tokenizer(fast, n_vocab=vocab_size, eos_token=self._end_ids)

    def start(self, schema: type[BaseModel], rows: int, width: int) -> GuidedRows:
        """Guide a batch.

        Args:
            schema: every row becomes JSON of it, or is cut off within.
            rows: of the batch.
            width: ids of a row before anything is written.
        """
        from llguidance import LLMatcher

        # without this a small model fills its reply with white space
        options: Any = {"whitespace_flexible": False}
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(_strict(schema.model_json_schema())), defaults=options)
        first = LLMatcher(self._tokenizer, grammar)
        return GuidedRows(
            [first, *(first.deep_copy() for _ in range(rows - 1))], width, self._vocab_size, self._end_ids
        )


class GuidedRows(LogitsProcessor):
    """Keeps up with what each row of a batch has written, however often ``generate`` is called for it."""

    def __init__(self, matchers: list[Any], width: int, vocab_size: int, end_ids: list[int]) -> None:
        """Begin after ``width`` ids."""
        self._matchers, self._read = matchers, width
        self._vocab_size, self._end_ids = vocab_size, end_ids

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows, in this order."""
        self._matchers = [self._matchers[row] for row in rows]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores ``(B, V)`` with minus infinity where a token is ruled out."""
        from llguidance.torch import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask

        for matcher, ids in zip(self._matchers, input_ids[:, self._read :].tolist(), strict=True):
            for token in ids:
                if not matcher.is_stopped():
                    matcher.consume_token(token)
        self._read = input_ids.shape[1]
        allowed = allocate_token_bitmask(len(self._matchers), self._vocab_size)
        for row, matcher in enumerate(self._matchers):
            if not matcher.is_stopped():
                fill_next_token_bitmask(matcher, allowed, row)
        masked = scores.to("cpu", copy=True)
        apply_token_bitmask_inplace(masked, allowed)
        ended = [row for row, matcher in enumerate(self._matchers) if matcher.is_stopped()]
        for row in ended:  # nothing may follow but the end
            masked[row] = -torch.inf
            masked[row, self._end_ids] = 0.0
        return masked.to(scores.device)


def _strict(schema: Any) -> Any:
    """A JSON schema whose objects have every field that it names, and no other."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if isinstance(strict.get("properties"), dict):
        strict |= {"additionalProperties": False, "required": list(strict["properties"])}
    return strict
