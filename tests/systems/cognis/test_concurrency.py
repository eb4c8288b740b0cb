"""Threads, processes, and a process that is killed while it writes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.sqlite import SQLiteStore
from tests.systems.cognis.conftest import ask, said

# sessions of ten messages, one transaction each, until somebody ends it; without torch, so it is quick to start
WRITER = """
import sys
import numpy as np
from pathlib import Path
from mlmf.systems.cognis.records import Memory, new_id
from mlmf.systems.cognis.sqlite import SQLiteStore

path, user, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = SQLiteStore(path)
print("ready", flush=True)
for number in range(rounds):
    names = [new_id() for _ in range(10)]
    said = [Memory(n, "message", "Anna", f"number {number} {'word ' * 50}", None, number, 0, ("S",), n) for n in names]
    store.record(user, said, np.ones((10, 300), np.float32))
    print(number, flush=True)
"""


def start(path: Path, user: str, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), user, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])


def test_a_process_that_is_killed_in_a_write_leaves_whole_sessions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = start(path, "anna", 100_000)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for _ in range(20):
        confirmed = int(process.stdout.readline())
    time.sleep(0.013)  # somewhere within a later write
    os.kill(process.pid, signal.SIGKILL)
    confirmed = max(confirmed, *(int(line) for line in process.stdout.read().split() or ["0"]))
    process.wait()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    store = SQLiteStore(path)
    messages = store.pending("anna")
    assert len(messages) % 10 == 0 and len(messages) // 10 >= confirmed + 1
    assert [message.position for message in messages] == list(range(len(messages)))
    ids, vectors = store.vectors("anna", [message.id for message in messages[-10:]])
    assert len(ids) == 10 and vectors.shape == (10, 300)
    assert len(store.search_words("anna", ["number"], len(messages) + 1)) == len(messages)
    store.close()


def test_processes_write_to_one_file_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writers = [start(path, user, 15) for user in ("anna", "anna", "ben")]
    outputs = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert [output.split()[-1] for output in outputs] == ["14"] * 3
    store = SQLiteStore(path)
    for user, count in (("anna", 300), ("ben", 150)):
        messages = store.pending(user)
        assert [message.position for message in messages] == list(range(count))
        # the ten of a session stand together, whatever the other process did
        assert all(len({m.session for m in messages[i : i + 10]}) == 1 for i in range(0, count, 10))
    store.close()


def test_threads_write_and_search_side_by_side(memory: CognisMemory) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                for user, other in (("anna", "ben"), ("ben", "anna")):
                    assert not any(other in text for text in ask(memory, user, "which violin number?", count=50)[0])
            except BaseException as error:
                failures.append(error)
                return

    def write(user: str, number: int) -> None:
        memory.add(
            user, said(number, f"{user} plays violin number {number} all day.", f"Is {user} {number} there?", day=1)
        )

    reader = threading.Thread(target=read)
    reader.start()
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, user, number) for number in range(12) for user in ("anna", "ben", "cleo")]:
            done.result()
    stop.set()
    reader.join()
    assert failures == []
    for user in ("anna", "ben", "cleo"):
        facts = memory.known_on(user, datetime(2024, 1, 1))
        assert sorted(fact.text for fact in facts) == sorted(
            f"{user} plays violin number {n} all day." for n in range(12)
        )


def test_messages_that_a_dead_process_left_unread_are_read_by_the_next(
    new_memory: Callable[..., CognisMemory], tmp_path: Path
) -> None:
    path = str(tmp_path / "store.db")
    first = new_memory(documents=path)
    first.record("anna", said(0, "We adopted a grey cat.", "The dog likes the cat a lot."))  # and dies before extract
    second = new_memory(documents=path)
    assert second.add("anna", said(1, "I live in Lisbon.")).added == 3
    assert ask(first, "anna", "grey cat")[0][0] == "We adopted a grey cat."
