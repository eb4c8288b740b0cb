"""CogMem behind OpenAI's protocol: any client of a chat model talks to a model with a memory instead.

    python -m mlmf.systems.cogmem.serve --cogmem.reasoning_agent.model smollm2-135m --cogmem.sessions sessions.db

A client sends whole conversations, as always; ``user`` of the request says whose memory is used. Listens on this machine
only unless told otherwise, asks for no key, and does not stream.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from mlmf.config.cogmem import CogMemSettings
from mlmf.config.parse import parse_config, run_script
from mlmf.errors import UserError
from mlmf.llm.chat import ChatModel
from mlmf.systems.cogmem.build import open_cogmem
from mlmf.systems.cogmem.chat import CogMemChat
from mlmf.systems.cogmem.memory import CogMem

logger = logging.getLogger(__name__)

_PATHS = ("/v1/chat/completions", "/chat/completions")
_MOST_BYTES = 16 * 2**20


@dataclass
class ServeConfig:
    """What is served, and where."""

    cogmem: CogMemSettings = field(default_factory=CogMemSettings)
    """The memory and its agents."""
    base_model: str = "smollm2-135m"
    """Local model of an agent that names none."""
    encoder: str = "all-minilm-l6-v2"
    """Sentence encoder of long-term memory."""
    device: str | None = None
    """Of local models, such as cuda:1; null takes CUDA where there is one, else the CPU."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every network of this machine, on which anybody may then read any user's memory."""
    port: int = 8080
    """Port to listen on; 0 takes a free one."""
    max_new_tokens: int = 256
    """Longest reply, where the request does not ask for a shorter one."""


class _Request(BaseModel):
    """What is read of a request; what else a client sends changes nothing, since replies are always the most likely ones."""

    model_config = ConfigDict(extra="ignore")

    messages: list[dict[str, Any]]
    user: str = "user"
    stream: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


class CogMemServer(ThreadingHTTPServer):
    """Answers chat completions; each request has a thread of its own."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], memory: CogMem, model: ChatModel, *, max_new_tokens: int) -> None:
        """Listen; ``serve_forever`` answers.

        Args:
            address: host and port.
            memory: of all users.
            model: the reasoning agent.
            max_new_tokens: the longest reply.
        """
        super().__init__(address, _Handler)
        self.memory, self.model, self.max_new_tokens = memory, model, max_new_tokens

    def complete(self, body: bytes) -> dict[str, Any]:
        """The completion for a request.

        Raises:
            UserError: the request cannot be answered.
        """
        try:
            request = _Request.model_validate_json(body)
        except ValidationError as error:
            raise UserError(f"the request is no chat completion: {error.errors()[0]['msg']}") from error
        if request.stream:
            raise UserError("stream is true, but CogMem's server does not stream; ask without it")
        asked_for = request.max_completion_tokens or request.max_tokens or self.max_new_tokens
        chat = CogMemChat(
            self.memory, self.model, user=request.user, max_new_tokens=min(asked_for, self.max_new_tokens)
        )
        reply = chat.chat(request.messages)
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model.name,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": reply.text},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.new_tokens,
                "total_tokens": reply.prompt_tokens + reply.new_tokens,
            },
            "cogmem": {"state": reply.state, "recalled": list(reply.recalled)},
        }


class _Handler(BaseHTTPRequestHandler):
    server: CogMemServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The one model there is."""
        if self.path.rstrip("/") in ("/v1/models", "/models"):
            model = {"id": self.server.model.name, "object": "model", "created": 0, "owned_by": "mlmf"}
            self._send(HTTPStatus.OK, {"object": "list", "data": [model]})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}")

    def do_POST(self) -> None:
        """A chat completion."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > _MOST_BYTES:
            self.close_connection = True  # what follows is not read
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {_MOST_BYTES} bytes, got {length}")
            return
        body = self.rfile.read(length)
        if self.path.rstrip("/") not in _PATHS:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {self.path}")
            return
        try:
            self._send(HTTPStatus.OK, self.server.complete(body))
        except UserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            logger.exception("cogmem: a request failed")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; the server's log says why")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests go to the log of the package, not to the terminal."""
        logger.debug(format, *args)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
        self._send(status, {"error": {"message": message, "type": kind, "param": None, "code": None}})

    def _send(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted."""
    config = parse_config(
        ServeConfig, argv, prog="python -m mlmf.systems.cogmem.serve", description=(__doc__ or "").split("\n\n")[0]
    )
    memory, model = open_cogmem(
        config.cogmem, base_model=config.base_model, encoder=config.encoder, device=config.device
    )
    with CogMemServer((config.host, config.port), memory, model, max_new_tokens=config.max_new_tokens) as server:
        print(f"CogMem with {model.name} answers at http://{server.server_name}:{server.server_port}/v1", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("finishing what runs in the background")
        finally:
            memory.close()
    return 0


if __name__ == "__main__":
    run_script(main)
