"""A chat model as :class:`~mlmf.llm.base.LanguageModel`, so that a server can answer for the text systems."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.llm.base import Completion, LanguageModel, answer_line
from mlmf.llm.chat import ChatModel, Message


class PromptedChatModel(LanguageModel):
    """Sends each prompt as one user message; the answer is the first line of the reply."""

    def __init__(self, chat_model: ChatModel) -> None:
        """Answer with ``chat_model``."""
        self.chat_model = chat_model

    @property
    def context_window(self) -> int:
        """That of the chat model."""
        return self.chat_model.context_window

    def count_tokens(self, text: str) -> int:
        """As the chat model counts."""
        return self.chat_model.count_tokens(text)

    def complete(self, prompts: Sequence[str], max_new_tokens: int) -> list[Completion]:
        """Complete each prompt; the tokens read are those the model reports, its chat template included.

        Raises:
            ChatError: a reply failed, or a prompt and ``max_new_tokens`` exceed the window.
            UserError: the model cannot be reached or used as it is set up.
        """
        replies = self.chat_model.chat([[Message("user", prompt)] for prompt in prompts], max_new_tokens)
        return [Completion(answer_line(one.text), one.prompt_tokens, one.new_tokens) for one in replies]
