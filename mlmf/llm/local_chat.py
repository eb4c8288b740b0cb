"""A Hugging Face causal LM in this process as :class:`~mlmf.llm.chat.ChatModel`: greedy, batched, its chat template."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from jinja2 import TemplateError
from pydantic import BaseModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.errors import UserError
from mlmf.llm.chat import ChatError, ChatModel, Message, Reply
from mlmf.llm.greedy import GreedyDecoder


class LocalChatModel(ChatModel):
    """Talks with a loaded model. It is held to a ``schema`` where ``llguidance`` (the extra ``guided``) is installed."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        max_batch_tokens: int = 65_536,
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: the causal LM; it is put into evaluation mode.
            tokenizer: its tokenizer.
            name: what results call it.
            max_batch_tokens: see :class:`GreedyDecoder`.

        Raises:
            UserError: the tokenizer has no chat template, so the model was not made for conversations.
        """
        if not tokenizer.chat_template:
            raise UserError(f"model {name!r} has no chat template; take an instruct or chat model")
        self.name = name
        self.model, self.tokenizer = model, tokenizer
        self._decoder = GreedyDecoder(model, tokenizer, max_batch_tokens=max_batch_tokens)
        # one batch at a time: only then does the bound on a batch bound the memory of all threads
        self._lock = Lock()

    @property
    def is_guided(self) -> bool:
        """Whether a ``schema`` changes what is written."""
        return self._decoder.can_be_guided

    @property
    def context_window(self) -> int:
        """The positions the model was built for."""
        return self._decoder.context_window

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return self._decoder.count_tokens(text)

    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        """Reply to each conversation, with at least one token.

        Raises:
            ChatError: a conversation and ``max_new_tokens`` together exceed ``context_window``.
        """
        rows = [self._encode(conversation) for conversation in conversations]
        with self._lock:
            try:
                written = self._decoder.write(rows, max_new_tokens, schema=schema)
            except ValueError as error:
                raise ChatError(f"{self.name}: {error}") from error
        return [Reply(one.text.strip(), len(row), one.tokens) for row, one in zip(rows, written, strict=True)]

    def _encode(self, conversation: Sequence[Message]) -> list[int]:
        try:
            text = self._templated(conversation)
        except TemplateError:
            # some models know no system role, and their templates say so by failing
            text = self._templated(_without_system(conversation))
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def _templated(self, conversation: Sequence[Message]) -> str:
        messages = [{"role": message.role, "content": message.content} for message in conversation]
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _without_system(conversation: Sequence[Message]) -> list[Message]:
    """The same words with the opening system message at the head of the first user message."""
    match conversation:
        case [Message(role="system") as system, Message(role="user") as first, *rest]:
            return [Message("user", f"{system.content}\n\n{first.content}"), *rest]
        case _:
            return list(conversation)
