"""A model behind any server that speaks OpenAI's protocol, as :class:`~mlmf.llm.chat.ChatModel`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mlmf.errors import UserError
from mlmf.llm.chat import ChatError, ChatModel, Message, Reply

if TYPE_CHECKING:
    from openai import OpenAIError
    from openai.types.chat import ChatCompletion

logger = logging.getLogger(__name__)

_SHOWN_MODELS = 10
_SHOWN_CHARACTERS = 300
_OPTIONAL = {
    "max_tokens": re.compile(r"max_tokens.*\bsupport|unsupported.*max_tokens", re.IGNORECASE | re.DOTALL),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "response_format": re.compile(r"response_format|json_schema", re.IGNORECASE),
}
"""Options that some servers refuse, and how their refusal reads. The request is then sent without."""


def estimated_tokens(text: str) -> int:
    """Tokens of ``text`` where no tokenizer is at hand: two per seven bytes of UTF-8, rounded up.

    Within 15 % of SmolLM2's own count on each conversation of LOCCO, as a test measures; other tokenizers and languages
    than English may lie further off.
    """
    return -(-2 * len(text.encode()) // 7)


class OpenAIChatModel(ChatModel):
    """Talks with a server through the official client, several conversations at a time.

    Requests that failed for the moment (connection, timeout, 408, 409, 429, 5xx) are sent again by the client, after
    waits that grow and that the server may set. What still fails then is a ``UserError`` where the user can put it right,
    else a ``ChatError``.

    The protocol has no call that counts tokens. ``count_tokens`` therefore uses the tokenizer it is given, or
    :func:`estimated_tokens`; the counts in a :class:`Reply` are the server's own, where it reports any.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeout: float = 120.0,
        max_retries: int = 4,
        concurrency: int = 8,
        context_window: int = 8192,
        count_tokens: Callable[[str], int] = estimated_tokens,
    ) -> None:
        """Make the client; nothing is sent yet.

        Args:
            name: of the model, as the server knows it.
            base_url: of the server, up to ``/v1``.
            api_key: sent with each request.
            api_key_env: where the key comes from, for messages about it.
            timeout: seconds to wait for one reply.
            max_retries: how often a request is sent again.
            concurrency: requests that are with the server at the same time, over all threads.
            context_window: tokens that a conversation and its reply may have together; servers do not tell.
            count_tokens: counts the tokens of a text.

        Raises:
            UserError: the extra ``openai`` is not installed.
        """
        try:
            from openai import OpenAI
        except ImportError as error:
            raise UserError(
                f"the model server {base_url} needs the package openai, which is not installed: "
                "pip install 'mlmf[openai]'"
            ) from error
        self.name = name
        self.base_url = base_url
        self._has_key, self._api_key_env = api_key is not None, api_key_env
        # the client refuses to have no key; servers that ask for none ignore it
        self._client = OpenAI(base_url=base_url, api_key=api_key or "none", timeout=timeout, max_retries=max_retries)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="mlmf-chat")
        self._context_window = context_window
        self._count_tokens = count_tokens
        self._refused: set[str] = set()

    @property
    def context_window(self) -> int:
        """As it was set."""
        return self._context_window

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` by the tokenizer that was given, else estimated."""
        return self._count_tokens(text)

    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        """Reply to each conversation; a ``schema`` goes to the server as its ``response_format``, if it takes one.

        Raises:
            UserError: the server cannot be reached, refuses the key, or has no such model.
            ChatError: a reply still failed after all retries.
        """
        futures = [self._pool.submit(self._reply, one, max_new_tokens, schema) for one in conversations]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _reply(self, conversation: Sequence[Message], max_new_tokens: int, schema: type[BaseModel] | None) -> Reply:
        completion = self._send(conversation, max_new_tokens, schema)
        # some gateways answer with an error under the status of success
        if not completion.choices:
            raise ChatError(f"model server {self.base_url}: no choice in {shorten(completion.model_dump_json(), 300)}")
        text = (completion.choices[0].message.content or "").strip()
        if completion.usage is None:
            read = sum(self.count_tokens(message.content) for message in conversation)
            return Reply(text, read, self.count_tokens(text))
        return Reply(text, completion.usage.prompt_tokens, completion.usage.completion_tokens)

    def _send(
        self, conversation: Sequence[Message], max_new_tokens: int, schema: type[BaseModel] | None
    ) -> ChatCompletion:
        import openai

        messages: Any = [{"role": message.role, "content": message.content} for message in conversation]
        while True:
            options = self._options(max_new_tokens, schema)
            try:
                return self._client.chat.completions.create(model=self.name, messages=messages, **options)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                words = _words(error)
                refused = next((name for name in options if name in _OPTIONAL and _OPTIONAL[name].search(words)), None)
                if refused is None:
                    raise self._failure(error, words) from error
                logger.warning("%s does not take %s; it is left out from now on", self.base_url, refused)
                self._refused.add(refused)
            except openai.OpenAIError as error:
                raise self._failure(error, _words(error)) from error

    def _failure(self, error: OpenAIError, words: str) -> ChatError | UserError:
        """What a failed request means for the user."""
        import openai

        server = f"model server {self.base_url}"
        is_there = isinstance(error, openai.APITimeoutError) or not isinstance(error, openai.APIConnectionError)
        if not is_there:
            return UserError(f"{server}: cannot be reached ({error.__cause__}). Start it, or correct base_url")
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            state = "refuses the key in" if self._has_key else "asks for a key, and none is in"
            return UserError(f"{server} {state} {self._api_key_env} ({error.status_code}): {words}")
        # some servers have a status for a model they do not know, others only words
        names_model = re.search(f"['\"`]{re.escape(self.name)}['\"`]", words)
        if isinstance(error, openai.NotFoundError) or (isinstance(error, openai.BadRequestError) and names_model):
            return UserError(f"{server}, model {self.name!r}: {words.rstrip('.')}. {self._offer()}")
        return ChatError(f"{server}: {type(error).__name__}: {words}")

    def _offer(self) -> str:
        """What the server has, for the message about a model it does not."""
        import openai

        try:
            names = [model.id for model in self._client.models.list().data]
        except openai.OpenAIError:
            return "Correct model, or base_url, which usually ends in /v1"
        more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
        return f"It has: {', '.join(names[:_SHOWN_MODELS]) or 'none'}{more}"

    def _options(self, max_new_tokens: int, schema: type[BaseModel] | None) -> dict[str, Any]:
        # newer models of OpenAI take the limit under another name only, which older servers do not know
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        options: dict[str, Any] = {limit: max_new_tokens, "temperature": 0.0}
        if schema is not None:
            options["response_format"] = _response_format(schema)
        return {name: value for name, value in options.items() if name not in self._refused}


def _words(error: OpenAIError) -> str:
    """What the server said, or the client where the server said nothing."""
    body = getattr(error, "body", None)
    # FastAPI's name for it; the client reads OpenAI's alone
    said = body.get("message") or body.get("detail") if isinstance(body, dict) else body
    return shorten(str(said or error), _SHOWN_CHARACTERS)


def _response_format(schema: type[BaseModel]) -> dict[str, Any]:
    from openai import pydantic_function_tool

    # the client's own way from a pydantic model to the strict schema; it offers it for tools only
    function = pydantic_function_tool(schema)["function"]
    return {
        "type": "json_schema",
        "json_schema": {"name": function["name"], "strict": True, "schema": function["parameters"]},
    }
