"""From settings to a chat model: local or behind a server, with its cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlmf.base_model import load_base, load_tokenizer, weights_digest
from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError
from mlmf.llm.cache import CachedChatModel
from mlmf.llm.chat import ChatModel
from mlmf.llm.local_chat import LocalChatModel
from mlmf.llm.openai_chat import OpenAIChatModel, estimated_tokens


def load_chat_model(
    settings: ChatSettings,
    *,
    default_model: str | None = None,
    device: str | None = None,
    prompt_version: str | None = None,
) -> ChatModel:
    """Load a local model, or make the client of a server; nothing is asked yet.

    Args:
        settings: of the model.
        default_model: the local model to take where the settings name none.
        device: of a local model; by default CUDA where there is one.
        prompt_version: part of the key of cached replies, for callers whose reading of a reply changes with it.

    Raises:
        UserError: no model is named, its weights cannot be loaded, an extra is missing, or the cache is no cache.
    """
    settings = replace(settings, model=settings.model or default_model)
    model: ChatModel
    if settings.base_url is None:
        model, weights = _local_model(settings, device)
    else:
        model, weights = _server_model(settings), None
    if settings.cache is None:
        return model
    made_with = {"server": settings.described["server"], "weights": weights, "prompt_version": prompt_version}
    return CachedChatModel(model, settings.cache, settings=made_with)


def token_counter(settings: ChatSettings) -> Callable[[str], int]:
    """Counts the tokens of a text as a server's model is taken to: by ``settings.tokenizer``, else estimated."""
    if settings.tokenizer is None:
        return estimated_tokens
    tokenizer = load_tokenizer(settings.tokenizer)
    return lambda text: len(tokenizer(text, add_special_tokens=False).input_ids)


def _server_model(settings: ChatSettings) -> OpenAIChatModel:
    assert settings.model is not None and settings.base_url is not None
    return OpenAIChatModel(
        settings.model,
        settings.base_url,
        api_key=settings.api_key,
        api_key_env=settings.api_key_env,
        timeout=settings.timeout,
        max_retries=settings.max_retries,
        concurrency=settings.concurrency,
        context_window=settings.context_window,
        count_tokens=token_counter(settings),
    )


def _local_model(settings: ChatSettings, device: str | None) -> tuple[LocalChatModel, str]:
    """The model, and what its replies depend on beside its name."""
    if settings.model is None:
        raise UserError("model is null; name a local model, or a server's with base_url")
    model, tokenizer = load_base(settings.model, device=device)
    name = str(settings.described["model"])
    chat = LocalChatModel(model, tokenizer, name=name)
    depends_on = f"{weights_digest(model.named_parameters())} {model.dtype}"
    return chat, f"{depends_on} guided" if chat.is_guided else depends_on
