"""Settings of a chat model: what is refused, and what results may show of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url must begin with http:// or https://, got 'localhost:8000'"),
        ({"base_url": "http://localhost:8000/v1"}, "but model is null"),
        ({"timeout": 0}, "timeout must be more than 0 seconds, got 0"),
        ({"max_retries": -1}, "max_retries must be at least 0, got -1"),
        ({"concurrency": 0}, "concurrency must be at least 1, got 0"),
        ({"context_window": 0}, "context_window must be at least 1, got 0"),
    ],
)
def test_impossible_values_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ChatSettings(**settings)


def test_a_description_holds_no_password_and_no_place_on_this_machine(tmp_path: Path) -> None:
    described = ChatSettings(
        model=str(tmp_path), base_url="https://me:secret@host:8000/v1?key=secret", tokenizer="org/name", timeout=3
    ).described
    assert described == {
        "model": tmp_path.name, "server": "https://host:8000/v1", "context_window": 8192, "tokenizer": "org/name",
    }  # fmt: skip
    local = ChatSettings(model="smollm2-135m", context_window=3).described
    assert local == {"model": "smollm2-135m", "server": None, "context_window": None, "tokenizer": None}


def test_no_key_in_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "")
    assert ChatSettings(api_key_env="MY_KEY").api_key is None
