"""A Hugging Face causal LM as :class:`~mlmf.llm.base.LanguageModel`: greedy, batched, one line per answer."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence

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

from mlmf.llm.base import Completion, LanguageModel

_CONTENT_MARK = "<<content>>"
# transformers renamed this argument of every model within its fifth major version
_CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"


class LocalLanguageModel(LanguageModel):
    """Answers with a loaded model.

    Prompts are sorted by length and padded on the left. A prefix shared by many prompts (a whole conversation) is
    read once and its key-value cache is copied for each of them; the cache of the latest prefix is kept, because the
    questions about a conversation come in several batches.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        chat: bool = False,
        max_batch_tokens: int = 65_536,
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: the causal LM; it is put into evaluation mode.
            tokenizer: its tokenizer.
            chat: wrap every prompt as one user message of the tokenizer's chat template.
            max_batch_tokens: bound on rows times tokens per row of one batch, which bounds the size of its cache.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.max_batch_tokens = max_batch_tokens
        self._head, self._tail = _split_chat_template(tokenizer) if chat else ("", "")
        self._chat = chat
        self._prefix: tuple[list[int], Cache] | None = None

    @property
    def context_window(self) -> int:
        """The positions the model was built for, or the tokenizer's limit where the model names none."""
        config = self.model.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", None) or self.tokenizer.model_max_length)

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self.tokenizer(text, add_special_tokens=False).input_ids)

    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Complete each prompt greedily up to the end of its first line."""
        return self._complete_ids([self._encode(prompt) for prompt in prompts], 0, max_new_tokens)

    def complete_with_prefix(self, prefix: str, suffixes: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Complete ``prefix + suffix`` for every suffix, reading the prefix once.

        The shared part is found on token ids, so the model reads exactly what ``complete`` would read even where a
        token straddles the border.
        """
        rows = [self._encode(prefix + suffix) for suffix in suffixes]
        prefix_ids = self._encode(prefix, closed=False)
        shared = min((_common_length(prefix_ids, row[:-1]) for row in rows), default=0)
        # a window or a recurrent state would count the padding between prefix and question as text
        if shared and self._has_plain_cache():
            return self._complete_ids(rows, shared, max_new_tokens)
        return self._complete_ids(rows, 0, max_new_tokens)

    def _encode(self, text: str, *, closed: bool = True) -> list[int]:
        if not self._chat:
            return list(self.tokenizer(text).input_ids)
        text = self._head + text + (self._tail if closed else "")
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    @torch.inference_mode()
    def _complete_ids(self, rows: list[list[int]], shared: int, max_new_tokens: int) -> list[Completion]:
        for row in rows:
            if len(row) + max_new_tokens > self.context_window:
                raise ValueError(
                    f"a prompt of {len(row)} tokens and {max_new_tokens} new ones exceed the model's window of "
                    f"{self.context_window}"
                )
        completions: dict[int, Completion] = {}
        for batch in self._batches(rows, max_new_tokens):
            written = self._generate([rows[index] for index in batch], shared, max_new_tokens)
            for index, ids in zip(batch, written, strict=True):
                completions[index] = self._completion(len(rows[index]), ids)
        return [completions[index] for index in range(len(rows))]

    def _batches(self, rows: list[list[int]], max_new_tokens: int) -> Iterator[list[int]]:
        """Row numbers, longest first, so that a batch that does not fit into memory fails at once."""
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        while order:
            size = max(1, self.max_batch_tokens // (len(rows[order[0]]) + max_new_tokens))
            yield order[:size]
            order = order[size:]

    def _generate(self, rows: list[list[int]], shared: int, max_new_tokens: int) -> list[list[int]]:
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
            stopping_criteria=StoppingCriteriaList([FirstLine(self.tokenizer, width)]),
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

    def _has_plain_cache(self) -> bool:
        cache = DynamicCache(config=self.model.config)
        return not any(cache.is_sliding) and not any(cache.is_linear)

    def _end_ids(self) -> list[int]:
        """Every id that ends an answer: the model's own list, which may be longer than the tokenizer's single one."""
        configured = self.model.generation_config.eos_token_id
        listed = configured if isinstance(configured, list) else [configured]
        ids = [token for token in [*listed, self.tokenizer.eos_token_id] if token is not None]
        return list(dict.fromkeys(ids))

    def _completion(self, prompt_tokens: int, ids: list[int]) -> Completion:
        end_ids = set(self._end_ids())
        kept = next((position for position, token in enumerate(ids) if token in end_ids), len(ids))
        text = str(self.tokenizer.decode(ids[:kept], skip_special_tokens=True))
        first_line = next(iter(text.strip().splitlines()), "")
        return Completion(first_line.strip(), prompt_tokens, min(kept + 1, len(ids)))


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


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(first), len(second)))


def _split_chat_template(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """What the chat template writes before and after the words of one user message."""
    messages = [{"role": "user", "content": _CONTENT_MARK}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    head, _, tail = str(text).partition(_CONTENT_MARK)
    return head, tail
