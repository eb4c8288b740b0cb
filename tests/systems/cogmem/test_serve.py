"""The official OpenAI client talks to CogMem: whole conversations go in, windows are read, users are apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import openai
import pytest

from mlmf.systems.cogmem.serve import CogMemServer
from tests.systems.cogmem.doubles import ScriptedModel, cogmem


@pytest.fixture
def server() -> Iterator[CogMemServer]:
    model = ScriptedModel(lambda said: f"I see {len(said)}.")
    with CogMemServer(("127.0.0.1", 0), cogmem(), model, max_new_tokens=50) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        server.memory.close()


@pytest.fixture
def client(server: CogMemServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_conversation_goes_on_in_its_session(server: CogMemServer, client: openai.OpenAI) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "My cat is called Miso."}]
    first = client.chat.completions.create(model="any", messages=messages, user="ann")  # type: ignore[call-overload]
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And where is my cat?"},
    ]
    second = client.chat.completions.create(model="any", messages=messages, user="ann")  # type: ignore[call-overload]
    again = client.chat.completions.create(model="any", messages=messages, user="ann")  # type: ignore[call-overload]
    assert isinstance(server.model, ScriptedModel)
    assert "[T1] User: My cat is called Miso." in server.model.last and "Be kind." in server.model.last
    assert second.usage.prompt_tokens > first.usage.prompt_tokens > 0
    assert (again.cogmem["state"], again.choices[0].message.content, again.usage.total_tokens) == (
        "exact", second.choices[0].message.content, 0,
    )  # fmt: skip
    other = client.chat.completions.create(model="any", messages=messages[-1:], user="ben")  # type: ignore[call-overload]
    assert other.cogmem == {"state": "new", "recalled": []}
    assert "Miso" not in server.model.last
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_what_cannot_be_answered_is_an_error_of_the_protocol(server: CogMemServer, client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="must end with a message of the user"):
        create(model="any", messages=[])
    with pytest.raises(openai.BadRequestError, match="does not stream"):
        create(model="any", messages=[{"role": "user", "content": "hi"}], stream=True)
    with pytest.raises(openai.BadRequestError, match="the request is no chat completion"):
        client.post("/chat/completions", body={"messages": "hi"}, cast_to=object)
    with pytest.raises(openai.NotFoundError, match="there is no /v1/embeddings"):
        client.embeddings.create(model="any", input="hi")

    def fail(said: str) -> str:
        raise OSError("secret place")

    assert isinstance(server.model, ScriptedModel)
    server.model.reply = fail
    with pytest.raises(openai.InternalServerError, match="the server's log says why") as caught:
        create(model="any", messages=[{"role": "user", "content": "hi"}])
    assert "secret" not in str(caught.value)
