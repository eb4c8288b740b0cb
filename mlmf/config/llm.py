"""Settings of a chat model: a local one, or one behind a server that speaks OpenAI's protocol."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mlmf.errors import UserError


@dataclass
class ChatSettings:
    """Which model talks, and how a server is spoken to."""

    model: str | None = None
    """Local: known name, local path or Hugging Face id. With base_url: the name that the server knows it by."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server, such as http://localhost:8000/v1; null runs the model in this process."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the server's key; unset for a server that asks for none."""
    timeout: float = 120.0
    """Seconds to wait for one reply of the server."""
    max_retries: int = 4
    """How often a request that failed for the moment is sent again, after longer and longer waits."""
    concurrency: int = 8
    """Requests that are with the server at the same time, over all threads."""
    context_window: int = 8192
    """Tokens that a conversation and its reply may have together on the server; a local model knows its own."""
    tokenizer: str | None = None
    """Tokenizer (local path or Hugging Face id) to count the server's tokens with; null estimates them."""
    cache: str | None = None
    """File that keeps every reply, so that nothing is asked twice; null keeps none. It holds what was said, in plain."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        for name in ("concurrency", "context_window"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.timeout <= 0:
            raise UserError(f"timeout must be more than 0 seconds, got {self.timeout}")
        if self.max_retries < 0:
            raise UserError(f"max_retries must be at least 0, got {self.max_retries}")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise UserError(f"base_url must begin with http:// or https://, got {self.base_url!r}")
        if self.base_url is not None and self.model is None:
            raise UserError(f"base_url is {self.base_url}, but model is null; name the model to use there")

    @property
    def api_key(self) -> str | None:
        """The key in the environment, or none."""
        return os.environ.get(self.api_key_env) or None

    @property
    def described(self) -> dict[str, Any]:
        """What may change a reply, as results show it: with no place on this machine, and no password."""
        is_server = self.base_url is not None
        return {
            "model": _public_name(self.model),
            "server": _public_url(self.base_url),
            "context_window": self.context_window if is_server else None,
            "tokenizer": _public_name(self.tokenizer) if is_server else None,
        }


@dataclass
class JudgeSettings(ChatSettings):
    """The model that judges answers."""

    max_new_tokens: int = 16
    """Room for its verdict, which is one word; a model that thinks aloud first needs more."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be used."""
        super().__post_init__()
        if self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


def _public_name(name: str | None) -> str | None:
    """A name as it is, of a folder its last part only."""
    return Path(name).resolve().name if name is not None and Path(name).is_dir() else name


def _public_url(url: str | None) -> str | None:
    """An address without the user and password, or the query, that may stand in it."""
    if url is None:
        return None
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
