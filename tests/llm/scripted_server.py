"""A real HTTP server that answers by a script: for what no well-behaved model server does when it is asked to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


@dataclass
class Script:
    """One step per request; the last one stays. ``requests`` are the bodies that came in."""

    steps: list[Step]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""


def completion(text: str | None, **changes: Any) -> tuple[int, dict[str, Any]]:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}
    return 200, body | changes


def says(text: str | None, **changes: Any) -> Step:
    return lambda request: completion(text, **changes)


def fails(status: int, message: str) -> Step:
    return lambda request: (status, {"error": {"message": message}})


def echoes(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Say the last message again, after a moment in which others may come in."""
    time.sleep(0.05)
    return completion(request["messages"][-1]["content"])


@contextmanager
def scripted_server(*steps: Step) -> Iterator[Script]:
    script, lock = Script(list(steps)), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                step = script.steps[min(len(script.requests), len(script.steps) - 1)]
                script.requests.append(request)
                script.keys.append(self.headers["Authorization"])
                script.at_once += 1
                script.most_at_once = max(script.most_at_once, script.at_once)
            status, body = step(request)
            with lock:
                script.at_once -= 1
            self._answer(status, body)

        def do_GET(self) -> None:
            self._answer(200, {"object": "list", "data": [{"id": "other", "object": "model"}]})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            # the client's own way to be told when to come back; keeps the tests quick
            self.send_header("retry-after-ms", "10")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
