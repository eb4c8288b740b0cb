"""Replies kept in one SQLite file: what was asked before is not asked again, by this run or the next."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mlmf.errors import UserError
from mlmf.llm.chat import ChatModel, DelegatingChatModel, Message, Reply

_WAIT_SECONDS = 60.0


class CachedChatModel(DelegatingChatModel):
    """A model whose replies are kept, in a file that many threads and processes may share.

    The key of a reply is the sha256 of the model's name, the settings it was made with, the messages, the token limit and
    the schema. Equal conversations of one call are asked once. The file holds replies in plain text, and of the
    conversations only the key.
    """

    def __init__(self, model: ChatModel, path: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
        """Open or make the file.

        Args:
            model: asked where there is no reply yet.
            path: of the file; its folder is made.
            settings: what else may change a reply, such as weights, server or the version of the prompts; JSON values.

        Raises:
            UserError: the file cannot be made, or is no cache of this version.
        """
        super().__init__(model)
        self._path = Path(path)
        self._settings = dict(settings or {})
        self._create()

    def chat(
        self,
        conversations: Sequence[Sequence[Message]],
        max_new_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
    ) -> list[Reply]:
        """Reply to each conversation, from the file where it can."""
        keys = [self._key(conversation, max_new_tokens, schema) for conversation in conversations]
        known = self._find(keys)
        # by key, so that a conversation that occurs twice is asked once
        missing = {key: one for key, one in zip(keys, conversations, strict=True) if key not in known}
        if missing:
            replies = self._model.chat(list(missing.values()), max_new_tokens, schema=schema)
            made = dict(zip(missing, replies, strict=True))
            self._keep(made)
            known |= made
        return [known[key] for key in keys]

    def _key(self, conversation: Sequence[Message], max_new_tokens: int, schema: type[BaseModel] | None) -> str:
        request = {
            "model": self.name,
            "settings": self._settings,
            "messages": [[message.role, message.content] for message in conversation],
            "max_new_tokens": max_new_tokens,
            "schema": None if schema is None else schema.model_json_schema(),
        }
        return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()

    def _find(self, keys: Sequence[str]) -> dict[str, Reply]:
        found = {}
        with self._open() as database:
            for key in dict.fromkeys(keys):
                row = database.execute(
                    "SELECT text, prompt_tokens, new_tokens FROM replies WHERE key = ?", (key,)
                ).fetchone()
                if row is not None:
                    text, prompt_tokens, new_tokens = row
                    found[key] = Reply(text, prompt_tokens, new_tokens, cached=True)
        return found

    def _keep(self, replies: Mapping[str, Reply]) -> None:
        rows = [(key, self.name, one.text, one.prompt_tokens, one.new_tokens) for key, one in replies.items()]
        with self._open() as database, database:
            # another process may have asked the same meanwhile: the first reply stays
            database.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?)", rows)

    def _create(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as database, database:
                # readers and a writer do not wait for each other; the file remembers the mode
                database.execute("PRAGMA journal_mode = WAL")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL, "
                    "prompt_tokens INTEGER NOT NULL, new_tokens INTEGER NOT NULL) WITHOUT ROWID"
                )
                database.execute("SELECT key, model, text, prompt_tokens, new_tokens FROM replies LIMIT 1")
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"cache {self._path}: not usable as a file of replies ({error}); give another") from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # one connection a call: nothing to share between threads or to inherit by a fork
        with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS)) as database:
            yield database
