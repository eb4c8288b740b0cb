"""Direct-access memory: the notes of a session, brought up to date after each turn while the user already has the answer."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from mlmf.systems.cogmem.agents import MemoryAgent
from mlmf.systems.cogmem.records import Notes, TurnRecord, open_notes
from mlmf.systems.cogmem.sessions import SessionManager

logger = logging.getLogger(__name__)


class DirectAccess:
    """Updates notes in the background.

    The store holds the turn, marked as pending, before its answer is given. An update that was lost with its process, or
    that failed, is made when the notes are next needed, from the last turn whose notes there are.
    """

    def __init__(
        self, sessions: SessionManager, agent: MemoryAgent, *, keeps_notes: bool = True, workers: int = 2
    ) -> None:
        """Keep notes.

        Args:
            sessions: where turns and notes are.
            agent: writes the notes and sums up each turn.
            keeps_notes: whether there are notes; the summaries are made in any case.
            workers: updates of different sessions that run at once.
        """
        self._sessions, self._agent, self._keeps_notes = sessions, agent, keeps_notes
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="cogmem-notes")
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], Future[None]] = {}
        self.failures = 0
        """Updates that raised; each is made again when its notes are needed."""

    def submit(self, user: str, turn: TurnRecord) -> None:
        """Update the notes after a turn, some time soon."""
        self._start(user, turn.key, turn.parent)

    def notes(self, user: str, head: str | None) -> Notes:
        """The notes after a turn; waits for their update. Where it fails, the latest notes before it."""
        return open_notes(self.read(user, head))

    def read(self, user: str, head: str | None) -> tuple[TurnRecord, ...]:
        """The dialogue up to a turn, with notes and summaries; waits for them as ``notes`` does."""
        turns = self._sessions.turns(user, head)
        if not turns or turns[-1].notes is not None:
            return turns
        self._start(user, turns[-1].key, turns[-1].parent)
        self._wait(user, turns[-1].key)
        return self._sessions.turns(user, head)

    def recover(self, user: str) -> int:
        """Start every update that is pending, such as after a crash.

        Returns:
            How many.
        """
        keys = self._sessions.pending(user)
        for key in keys:
            self._start(user, key, None)
        return len(keys)

    def flush(self) -> None:
        """Wait until no update is running."""
        while True:
            with self._lock:
                running = list(self._running)
            if not running:
                return
            for user, key in running:
                self._wait(user, key)

    def close(self) -> None:
        """Finish what is running, and take no more."""
        self._pool.shutdown(wait=True)

    def _start(self, user: str, key: str, parent: str | None) -> None:
        with self._lock:
            if (user, key) in self._running:
                return
            # an older turn was submitted earlier and the pool takes turns in order, so waiting for it cannot block
            before = self._running.get((user, parent)) if parent else None
            future = self._pool.submit(self._update, user, key, before)
            self._running[user, key] = future
        future.add_done_callback(lambda done: self._finished(user, key, done))

    def _finished(self, user: str, key: str, done: Future[None]) -> None:
        with self._lock:
            self._running.pop((user, key), None)
            error = done.exception()
            if error is not None:
                self.failures += 1
        if error is not None:
            logger.warning("cogmem: notes were not updated and will be when they are needed: %s", error)

    def _wait(self, user: str, key: str) -> None:
        with self._lock:
            future = self._running.get((user, key))
        if future is not None:
            future.exception()

    def _update(self, user: str, key: str, before: Future[None] | None) -> None:
        if before is not None:
            before.exception()
        notes, turns = self._sessions.unread(user, key)
        for turn in turns:
            update = self._agent.update(notes, turn)
            if not self._keeps_notes:
                update = update.model_copy(update={"notes": ()})
            self._sessions.settle(user, turn.key, update)
            notes = update.notes
