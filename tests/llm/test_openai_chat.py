"""The client of a model server: against a real one that serves a model, and where servers fail, against a scripted one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.base_model import load_tokenizer
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.llm.chat import ChatError, Message
from mlmf.llm.local_chat import LocalChatModel
from mlmf.llm.openai_chat import OpenAIChatModel, estimated_tokens
from mlmf.types import format_line
from tests.conftest import ModelServer
from tests.llm.scripted_server import Step, completion, echoes, fails, says, scripted_server

HELLO = [Message("system", "Be short."), Message("user", "Hello?")]


def client(url: str, **settings: Any) -> OpenAIChatModel:
    return OpenAIChatModel("m", url, **({"max_retries": 2} | settings))


def test_a_server_says_what_the_same_model_says_in_process(
    model_server: ModelServer, tiny_lm: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> None:
    conversations = [HELLO, [*HELLO, Message("assistant", "Hi."), Message("user", "How are you?")]]
    there = OpenAIChatModel(model_server.model, model_server.url).chat(conversations, 6)
    # tokens and not words: a random model writes bytes that are no text, and the two may show them differently
    here = LocalChatModel(*tiny_lm, name="tiny").chat(conversations, 6)
    assert [one.prompt_tokens for one in there] == [one.prompt_tokens for one in here]
    assert [one.new_tokens for one in there] == [one.new_tokens for one in here]
    assert [one.text for one in there] == [one.text for one in here]


def test_an_unknown_model_names_what_the_server_has(model_server: ModelServer) -> None:
    with pytest.raises(UserError, match=r"model 'absent': .*It has: "):
        OpenAIChatModel("absent", model_server.url).chat([HELLO], 4)
    with scripted_server(fails(404, "no such model")) as script, pytest.raises(UserError, match=r"It has: other$"):
        client(script.url).chat([HELLO], 4)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_request_that_fails_twice_for_the_moment_is_sent_again(status: int) -> None:
    with scripted_server(fails(status, "busy"), fails(status, "busy"), says(" Hi. \n")) as script:
        (reply,) = client(script.url).chat([HELLO], 4)
        assert (reply.text, reply.prompt_tokens, reply.new_tokens, reply.cached) == ("Hi.", 7, 2, False)
        assert len(script.requests) == 3
        assert script.requests[0] == {
            "model": "m",
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello?"}],
            "max_tokens": 4,
            "temperature": 0.0,
        }
    with scripted_server(fails(status, "busy")) as script:
        with pytest.raises(ChatError, match="busy"):
            client(script.url, max_retries=1).chat([HELLO], 4)
        assert len(script.requests) == 2


def test_a_slow_server_is_a_failed_reply_and_no_mistake_of_the_user() -> None:
    with scripted_server(echoes) as script, pytest.raises(ChatError, match="APITimeoutError: Request timed out"):
        client(script.url, timeout=0.01, max_retries=0).chat([HELLO], 4)


def test_replies_keep_their_order_and_the_server_is_not_overrun() -> None:
    conversations = [[Message("user", f"number {number}")] for number in range(12)]
    with scripted_server(echoes) as script:
        model = client(script.url, concurrency=3)
        with ThreadPoolExecutor(2) as threads:
            halves = threads.map(lambda half: model.chat(half, 4), [conversations[:6], conversations[6:]])
        assert [reply.text for half in halves for reply in half] == [f"number {number}" for number in range(12)]
        assert 1 < script.most_at_once <= 3


def test_no_server_there_is_said_with_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(UserError, match=f"model server {url}: cannot be reached.*refused.*correct base_url"):
            client(url, max_retries=0).chat([HELLO], 4)


def test_a_refused_key_is_said_with_the_place_it_comes_from() -> None:
    with scripted_server(fails(401, "bad key")) as script:
        with pytest.raises(UserError, match=r"refuses the key in MY_KEY \(401\)"):
            client(script.url, api_key="secret", api_key_env="MY_KEY").chat([HELLO], 4)
        with pytest.raises(UserError, match="asks for a key, and none is in OPENAI_API_KEY") as refusal:
            client(script.url).chat([HELLO], 4)
        assert script.keys == ["Bearer secret", "Bearer none"]
        assert "secret" not in str(refusal.value)


class Verdict(BaseModel):
    verdict: Literal["yes", "no"]
    reason: str = ""


def refuses(option: str, message: str) -> Step:
    """A server that has no use for one option."""
    return lambda request: (400, {"error": {"message": message}}) if option in request else completion("Hi.")


def test_a_schema_is_sent_in_the_strict_form_that_servers_ask_for() -> None:
    with scripted_server(says('{"verdict": "yes"}')) as script:
        client(script.url).chat([HELLO], 4, schema=Verdict)
        sent = script.requests[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["strict"]) == ("json_schema", True)
    assert sent["json_schema"]["schema"]["additionalProperties"] is False
    assert sent["json_schema"]["schema"]["required"] == ["verdict", "reason"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("response_format", "Invalid parameter: 'response_format' of type 'json_schema' is not supported"),
        ("max_tokens", "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        ("temperature", "'temperature' does not support 0 with this model"),
    ],
)
def test_an_option_that_a_server_refuses_is_left_out_once_and_for_all(option: str, message: str) -> None:
    with scripted_server(refuses(option, message)) as script:
        model = client(script.url, concurrency=1)
        assert model.chat([HELLO, HELLO], 4, schema=Verdict)[1].text == "Hi."
        assert [option in request for request in script.requests] == [True, False, False]
        assert ("max_completion_tokens" in script.requests[1]) == (option == "max_tokens")


def test_a_conversation_that_is_too_long_is_a_failed_reply() -> None:
    with (
        scripted_server(fails(400, "the maximum context length is 10 tokens")) as script,
        pytest.raises(ChatError, match="maximum context length"),
    ):
        client(script.url).chat([HELLO], 4)


def test_a_reply_without_usage_or_without_words_still_counts() -> None:
    with scripted_server(says("seven b", usage=None), says(None), says("x", choices=[])) as script:
        model = client(script.url)
        (reply,) = model.chat([HELLO], 4)
        assert (reply.prompt_tokens, reply.new_tokens) == (
            estimated_tokens("Be short.") + estimated_tokens("Hello?"),
            2,
        )
        assert model.chat([HELLO], 4)[0].text == ""
        with pytest.raises(ChatError, match="no choice in"):
            model.chat([HELLO], 4)


def test_estimated_tokens_are_near_those_of_a_real_tokenizer() -> None:
    tokenizer = load_tokenizer("smollm2-135m")
    for conversation in load_task("locco").conversations:
        lines = [format_line(turn, session.date) for session in conversation.sessions for turn in session.turns]
        text = "\n".join(lines)
        counted = len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
        assert abs(estimated_tokens(text) / counted - 1) < 0.15


@pytest.mark.slow
def test_transformers_serve_answers_with_the_packaged_model(
    smollm2_server: ModelServer, smollm2: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> None:
    model = OpenAIChatModel(smollm2_server.model, smollm2_server.url)
    asked = [Message("user", "What is the capital of France?")]
    there, again = model.chat([asked, asked], 24)
    assert "Paris" in there.text
    assert there == again
    (here,) = LocalChatModel(*smollm2, name="smollm2").chat([asked], 24)
    assert (there.prompt_tokens, there.text) == (here.prompt_tokens, here.text)
