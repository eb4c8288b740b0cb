"""Kept replies: asked once, told apart by everything that may change them, shared by threads and processes."""

from __future__ import annotations

import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mlmf.errors import UserError
from mlmf.llm.cache import CachedChatModel
from mlmf.llm.chat import Message, Reply
from mlmf.llm.local_chat import LocalChatModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from tests.llm.doubles import SpokenFor

PROCESSES, QUESTIONS = 3, 40


def said(text: str) -> list[Message]:
    return [Message("user", text)]


class Count(BaseModel):
    count: int


def test_a_second_run_asks_nothing_and_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "new" / "replies.sqlite"
    tiny = LocalChatModel(tiny_model("llama"), tiny_tokenizer(), name="tiny")
    first = CachedChatModel(tiny, path).chat([said("Hello?"), said("When?")], 4)
    again = SpokenFor(lambda text: "never asked", name="tiny")
    second = CachedChatModel(again, path).chat([said("When?"), said("Hello?")], 4)
    assert again.asked == []
    assert [one.cached for one in first + second] == [False, False, True, True]
    assert second[::-1] == [Reply(one.text, one.prompt_tokens, one.new_tokens, cached=True) for one in first]


def test_only_what_is_new_is_asked_and_what_occurs_twice_is_asked_once(tmp_path: Path) -> None:
    model = SpokenFor(str.upper)
    cached = CachedChatModel(model, tmp_path / "replies.sqlite")
    cached.chat([said("a")], 4)
    replies = cached.chat([said("b"), said("a"), said("b"), said("c")], 4)
    assert [one.text for one in replies] == ["B", "A", "B", "C"]
    assert [one[-1].content for one in model.asked] == ["a", "b", "c"]
    assert cached.chat([], 4) == []
    assert (cached.name, cached.context_window, cached.count_tokens("one two")) == ("spoken-for", 1000, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "another"},
        {"settings": {"server": "elsewhere"}},
        {"settings": {"prompt_version": 2}},
        {"max_new_tokens": 5},
        {"schema": Count},
        {"conversation": [Message("system", "x"), Message("user", "a")]},
        {"conversation": [Message("assistant", "a")]},
        # the same letters, cut into messages elsewhere
        {"conversation": [Message("user", "a"), Message("user", "")]},
    ],
)
def test_whatever_may_change_a_reply_is_part_of_its_key(tmp_path: Path, change: dict[str, Any]) -> None:
    def ask(
        model: SpokenFor,
        name: str = "spoken-for",
        settings: dict[str, Any] | None = None,
        max_new_tokens: int = 4,
        schema: type[BaseModel] | None = None,
        conversation: list[Message] | None = None,
    ) -> Reply:
        model.name = name
        cached = CachedChatModel(model, tmp_path / "replies.sqlite", settings=settings)
        return cached.chat([conversation or said("a")], max_new_tokens, schema=schema)[0]

    assert not ask(SpokenFor(str.upper)).cached
    assert ask(SpokenFor(str.upper)).cached
    assert not ask(SpokenFor(str.upper), **change).cached


def test_threads_share_a_file(tmp_path: Path) -> None:
    cached = CachedChatModel(SpokenFor(str.upper), tmp_path / "replies.sqlite")
    texts = [f"question {number % QUESTIONS}" for number in range(4 * QUESTIONS)]
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda text: cached.chat([said(text)], 4)[0].text, texts))
    assert replies == [text.upper() for text in texts]
    assert kept(tmp_path / "replies.sqlite") == QUESTIONS


def ask_everything(path: Path) -> None:
    cached = CachedChatModel(SpokenFor(str.upper), path)
    for number in range(QUESTIONS):
        assert cached.chat([said(f"question {number}")], 4)[0].text == f"QUESTION {number}"


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    processes = [
        multiprocessing.get_context("fork").Process(target=ask_everything, args=(path,)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert kept(path) == QUESTIONS


def test_replies_are_on_the_disk_before_they_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"

    def fail_at_the_third(text: str) -> str:
        if text == "c":
            raise RuntimeError("stopped")
        return text

    cached = CachedChatModel(SpokenFor(fail_at_the_third), path)
    cached.chat([said("a"), said("b")], 4)
    with pytest.raises(RuntimeError, match="stopped"):
        cached.chat([said("c")], 4)
    assert kept(path) == 2


@pytest.mark.parametrize("content", [b"not a database, whatever its name says" * 40, None])
def test_a_file_that_is_no_cache_is_refused_and_left_alone(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "replies.sqlite"
    if content is None:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE replies (key TEXT)")
        content = path.read_bytes()
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"cache .*replies\.sqlite: not usable"):
        CachedChatModel(SpokenFor(str.upper), path)
    if content.startswith(b"not"):
        assert path.read_bytes() == content


def kept(path: Path) -> int:
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])
