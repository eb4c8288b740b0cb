"""The answer never waits for the notes, the next turn does where it needs them, and no update is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlmf.systems.cogmem.chat import CogMemChat
from mlmf.systems.cogmem.direct_access import DirectAccess
from mlmf.systems.cogmem.records import TurnRecord, said_in_exchange
from mlmf.systems.cogmem.sessions import SessionManager
from mlmf.systems.cogmem.stores import SqliteStore
from tests.systems.cogmem.doubles import HeldUp, ScriptedModel, cogmem

FACTS = ("My cat is called Miso and lives in Oslo.", "I bought a violin in May 2021.", "My dog Rex is 4 years old.")


def said(sessions: SessionManager, user: str = "ann", facts: tuple[str, ...] = FACTS) -> list[TurnRecord]:
    session, turns = sessions.begin(user), []
    for fact in facts:
        session, turn = sessions.append(user, session, said_in_exchange(fact, "ok"))
        turns.append(turn)
    return turns


def texts(access: DirectAccess, turn: TurnRecord) -> list[str]:
    return [note.text.removeprefix("User: ") for note in access.notes("ann", turn.key)]


def test_the_answer_does_not_wait_and_the_next_turn_does() -> None:
    agent = HeldUp()
    memory = cogmem()
    memory.direct_access = DirectAccess(memory.sessions, agent)
    model = ScriptedModel()
    chat = CogMemChat(memory, model)
    assert chat.respond(FACTS[0]) == "Noted."  # the agent is still held up
    assert len(memory.sessions.pending("user")) == 1
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(chat.respond, "Where does Miso live?")
        assert not second.done() and len(model.read) == 1
        agent.go.set()
        assert second.result(20) == "Noted."
    assert f"- conclusion: User: {FACTS[0]}" in model.last
    memory.direct_access.flush()
    assert memory.sessions.pending("user") == []


def test_notes_hold_every_turn_in_order_whoever_runs_first() -> None:
    agent = HeldUp()
    sessions = SessionManager(SqliteStore(), lifetime=99)
    access = DirectAccess(sessions, agent, workers=3)
    turns = said(sessions)
    for turn in turns:
        access.submit("ann", turn)
    agent.go.set()
    assert texts(access, turns[2]) == list(FACTS)
    assert texts(access, turns[0]) == [FACTS[0]]
    access.close()


def test_an_update_that_fails_is_made_when_its_notes_are_needed() -> None:
    agent = HeldUp()
    agent.go.set()
    sessions = SessionManager(SqliteStore(), lifetime=99)
    access = DirectAccess(sessions, agent)
    turns = said(sessions)
    access.submit("ann", turns[0])
    access.flush()
    agent.to_fail = 2
    access.submit("ann", turns[1])
    access.flush()
    assert (access.failures, sessions.pending("ann")) == (1, [turns[1].key, turns[2].key])
    assert texts(access, turns[2]) == [FACTS[0]]  # still failing: the latest notes there are
    assert texts(access, turns[2]) == list(FACTS)
    assert (access.failures, sessions.pending("ann")) == (2, [])


def test_without_notes_turns_are_summed_up_all_the_same() -> None:
    agent = HeldUp()
    agent.go.set()
    sessions = SessionManager(SqliteStore(), lifetime=99)
    turns = said(sessions)
    read = DirectAccess(sessions, agent, keeps_notes=False).read("ann", turns[-1].key)
    assert [turn.notes for turn in read] == [(), (), ()]
    assert all(turn.summary for turn in read)


DIES = """
    import os, signal, sys, time
    from mlmf.systems.cogmem.chat import CogMemChat
    from mlmf.systems.cogmem.direct_access import DirectAccess
    from tests.systems.cogmem.doubles import HeldUp, ScriptedModel, cogmem
    memory = cogmem(sessions=sys.argv[1])
    chat = CogMemChat(memory, ScriptedModel())
    chat.respond("I bought a violin in May 2021.")
    memory.direct_access.flush()
    memory.direct_access = DirectAccess(memory.sessions, HeldUp())  # never let go
    print(chat.respond("My cat is called Miso and lives in Oslo."), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_a_process_killed_between_answer_and_notes_loses_nothing(
    kind: str, new_uri: Callable[[str], str | None]
) -> None:
    uri = new_uri(kind)
    assert uri is not None
    root = Path(__file__).parents[3]
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DIES), uri],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, "Noted.\n"), died.stderr
    memory = cogmem(sessions=uri)
    assert len(memory.sessions.pending("user")) == 1
    model = ScriptedModel()
    chat = CogMemChat(memory, model)  # makes the lost update
    assert memory.direct_access is not None
    memory.direct_access.flush()
    assert memory.sessions.pending("user") == []
    dialogue = [
        {"role": "user", "content": "I bought a violin in May 2021."},
        {"role": "assistant", "content": "Noted."},
    ]
    dialogue += [{"role": "user", "content": FACTS[0]}, {"role": "assistant", "content": "Noted."}]
    reply = chat.chat([*dialogue, {"role": "user", "content": "What do you know?"}])
    assert reply.state == "inherited"
    for fact in ("I bought a violin in May 2021.", FACTS[0]):
        assert f"- conclusion: User: {fact}" in model.last
    memory.close()
