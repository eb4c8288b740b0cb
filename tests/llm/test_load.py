"""From settings to a model, and what of it results may show."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError
from mlmf.llm.base import Completion
from mlmf.llm.chat import Message
from mlmf.llm.load import load_chat_model
from mlmf.llm.openai_chat import estimated_tokens
from mlmf.llm.prompted import PromptedChatModel
from tests.conftest import ModelServer
from tests.llm.doubles import SpokenFor

HELLO = [[Message("user", "Hello?")]]


def test_a_local_model_is_called_by_its_folder_and_its_replies_by_its_weights(tmp_path: Path, saved: Path) -> None:
    cache = str(tmp_path / "replies.sqlite")
    model = load_chat_model(ChatSettings(model=str(saved), cache=cache), device="cpu")
    assert model.name == "saved"
    (first,) = model.chat(HELLO, 4)
    assert load_chat_model(ChatSettings(model=str(saved), cache=cache), device="cpu").chat(HELLO, 4)[0].cached
    # another model in a folder of the same name
    other = load_chat_model(ChatSettings(cache=cache), default_model="tiny-random", device="cpu")
    other.name = "saved"
    assert not other.chat(HELLO, 4)[0].cached
    assert first.text == load_chat_model(ChatSettings(model=str(saved)), device="cpu").chat(HELLO, 4)[0].text


def test_a_server_is_spoken_to_with_the_key_of_the_environment(
    model_server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    settings = ChatSettings(
        model=model_server.model, base_url=model_server.url, api_key_env="MY_KEY", cache=str(tmp_path / "replies")
    )
    assert settings.api_key == "secret"
    assert [load_chat_model(settings).chat(HELLO, 4)[0].cached for _ in range(2)] == [False, True]
    assert b"secret" not in (tmp_path / "replies").read_bytes()


def test_tokens_of_a_server_are_counted_by_a_tokenizer_where_one_is_named() -> None:
    at = ChatSettings(model="m", base_url="http://localhost:1/v1")
    assert load_chat_model(at).count_tokens("Hello?") == estimated_tokens("Hello?") == 2
    counted = ChatSettings(model="m", base_url="http://localhost:1/v1", tokenizer="tiny-random", context_window=9)
    assert (load_chat_model(counted).count_tokens("Hello?"), load_chat_model(counted).context_window) == (6, 9)


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="model is null; name a local model, or a server's with base_url"):
        load_chat_model(ChatSettings())


def test_a_prompt_is_one_user_message_and_the_answer_its_first_line() -> None:
    model = SpokenFor(lambda text: f"{text}!\nAnd more.")
    language_model = PromptedChatModel(model)
    assert language_model.complete_with_prefix("a ", ["b", "c"], 4) == [
        Completion("a b!", 3, 4),
        Completion("a c!", 3, 4),
    ]
    assert model.asked == [[Message("user", "a b")], [Message("user", "a c")]]
    assert (language_model.context_window, language_model.count_tokens("one two")) == (1000, 2)
