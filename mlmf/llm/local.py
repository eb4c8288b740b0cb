"""A Hugging Face causal LM as :class:`~mlmf.llm.base.LanguageModel`: greedy, batched, one line per answer."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.llm.base import Completion, LanguageModel, answer_line
from mlmf.llm.greedy import GreedyDecoder, Written

_CONTENT_MARK = "<<content>>"


class LocalLanguageModel(LanguageModel):
    """Answers with a loaded model. A prefix shared by many prompts is read once, see :class:`GreedyDecoder`."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        chat: bool = False,
        max_batch_tokens: int = 65_536,
        abstain_from: float | None = None,
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: the causal LM; it is put into evaluation mode.
            tokenizer: its tokenizer.
            chat: wrap every prompt as one user message of the tokenizer's chat template.
            max_batch_tokens: see :class:`GreedyDecoder`.
            abstain_from: see :class:`mlmf.config.model.MLMFConfig`.
        """
        self.model, self.tokenizer = model, tokenizer
        self._decoder = GreedyDecoder(model, tokenizer, max_batch_tokens=max_batch_tokens, abstain_from=abstain_from)
        self._head, self._tail = _split_chat_template(tokenizer) if chat else ("", "")
        self._chat = chat

    @property
    def context_window(self) -> int:
        """The positions the model was built for."""
        return self._decoder.context_window

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return self._decoder.count_tokens(text)

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
        return self._complete_ids(rows, shared if self._decoder.can_share_a_prefix else 0, max_new_tokens)

    def _encode(self, text: str, *, closed: bool = True) -> list[int]:
        if not self._chat:
            return list(self.tokenizer(text).input_ids)
        text = self._head + text + (self._tail if closed else "")
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def _complete_ids(self, rows: list[list[int]], shared: int, max_new_tokens: int) -> list[Completion]:
        written = self._decoder.write(rows, max_new_tokens, shared=shared, one_line=True)
        return [_completion(row, one) for row, one in zip(rows, written, strict=True)]


def _completion(row: list[int], written: Written) -> Completion:
    return Completion(answer_line(written.text), len(row), written.tokens, written.seconds_decoding)


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(first), len(second)))


def _split_chat_template(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """What the chat template writes before and after the words of one user message."""
    messages = [{"role": "user", "content": _CONTENT_MARK}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    head, _, tail = str(text).partition(_CONTENT_MARK)
    return head, tail
