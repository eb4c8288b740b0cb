"""A local HTTP server that speaks the few requests of OpenSearch that the store sends. It is not OpenSearch.

It keeps documents in a dictionary, ranks by the number of shared words, and remembers every request, so that tests can see
what is sent and that the store's own logic holds together. Whatever is not known is answered with 500.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]


class SearchServer(ThreadingHTTPServer):
    """Documents by index and id; ``requests`` holds (method, path, body)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.indexes: dict[str, dict[str, Document]] = {}
        self.revisions: dict[tuple[str, str], int] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.lock = threading.Lock()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        index, _, rest = path.strip("/").partition("/")
        documents = self.indexes.get(index)
        if not rest:
            if method == "HEAD":
                return (200 if documents is not None else 404), None
            self.indexes[index] = {}
            return 200, {}
        assert documents is not None
        action, _, name = rest.partition("/")
        if action == "_bulk":
            items = [self._change(index, *pair) for pair in _pairs(body)]
            return 200, {"errors": any(status >= 300 for status in items)}
        if action == "_search":
            return 200, self._search(index, body)
        if action == "_count":
            return 200, {"count": len(_matching(documents, body))}
        if action == "_delete_by_query":
            for key in _matching(documents, body):
                del documents[key]
            return 200, {}
        if method == "PUT" and action == "_doc":
            documents[name] = body
            return 200, {}
        if method == "GET":
            return (200, {"_source": documents[name]}) if name in documents else (404, {})
        if method == "DELETE":
            documents.pop(name, None)
            return 200, {}
        operation = {"_create": "create", "_update": "update"}[action]
        return self._change(index, {operation: {"_id": name}}, body), {}

    def _change(self, index: str, action: Document, body: Document | None) -> int:
        ((operation, target),) = action.items()
        documents, name = self.indexes[index], target["_id"]
        if operation == "delete":
            documents.pop(name, None)
            return 200
        assert body is not None
        if operation == "create":
            if name in documents:
                return 409
            documents[name] = body
        else:
            if name not in documents:
                return 404
            if target.get("if_seq_no", self.revisions[index, name]) != self.revisions[index, name]:
                return 409
            for key, value in body["doc"].items():
                documents[name][key] = documents[name][key] | value if isinstance(value, dict) else value
        self.revisions[index, name] = self.revisions.get((index, name), 0) + 1
        return 200

    def _search(self, index: str, body: Document) -> Document:
        found = _matching(self.indexes[index], body)
        if "aggs" in body:
            ((name, terms),) = body["aggs"].items()
            keys = {document[terms["terms"]["field"]] for document in found.values()}
            return {"aggregations": {name: {"buckets": [{"key": key} for key in keys]}}}
        (first, *_) = body["sort"]
        if first == "_score":
            wanted = _words(body["query"]["bool"]["must"]["match"]["searchable"]["query"])
            score = {key: len(wanted & _words(document["searchable"])) for key, document in found.items()}
            keys = sorted((key for key in found if score[key]), key=lambda key: (-score[key], key))
        else:
            ((field, order),) = first.items()
            keys = sorted(found, key=lambda key: found[key][field], reverse=order == "desc")
            keys = [key for key in keys if found[key][field] > body.get("search_after", [""])[0]]
        kept = body["_source"]["excludes"] if isinstance(body["_source"], dict) else []
        hits = [
            {
                "_id": key,
                "_source": {name: value for name, value in found[key].items() if name not in kept},
                "_seq_no": self.revisions[index, key],
                "_primary_term": 1,
                "sort": [found[key]["id"]],
            }
            for key in keys[: body["size"]]
        ]
        return {"hits": {"hits": hits}}


class _Handler(BaseHTTPRequestHandler):
    server: SearchServer

    def _handle(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = self.path.partition("?")[0]
        body = [json.loads(line) for line in raw.splitlines()] if "_bulk" in path else json.loads(raw or "null")
        with self.server.lock:
            self.server.requests.append((self.command, path, body))
            try:
                status, reply = self.server.answer(self.command, path, body)
            except (AssertionError, KeyError, ValueError) as error:
                status, reply = 500, {"error": repr(error)}
        content = b"" if self.command == "HEAD" else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def _pairs(lines: list[Document]) -> Iterator[tuple[Document, Document | None]]:
    rest = iter(lines)
    for line in rest:
        yield line, None if "delete" in line else next(rest)


def _matching(documents: dict[str, Document], body: Document) -> dict[str, Document]:
    conditions = body["query"]["bool"]["filter"]
    return {key: one for key, one in documents.items() if all(_holds(key, one, condition) for condition in conditions)}


def _holds(key: str, document: Document, condition: Document) -> bool:
    ((kind, detail),) = condition.items()
    if kind == "ids":
        return key in detail["values"]
    if kind == "exists":
        return document[detail["field"]] is not None
    ((field, value),) = detail.items()
    if kind == "range":
        return bool(document[field] > value["gt"])
    return document[field] in value if kind == "terms" else bool(document[field] == value)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@contextmanager
def running() -> Iterator[SearchServer]:
    """A server in a thread of its own."""
    server = SearchServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
