"""The parts of CogMem together: what happens when a session begins, goes on and ends. Any number of users share one."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from mlmf.systems.cogmem.direct_access import DirectAccess
from mlmf.systems.cogmem.focus import FocusOfAttention
from mlmf.systems.cogmem.long_term import LongTermMemory
from mlmf.systems.cogmem.records import Insight, Said, SessionRecord, TurnRecord
from mlmf.systems.cogmem.sessions import SessionManager

logger = logging.getLogger(__name__)


class CogMem:
    """Long-term memory, notes and the focus of attention over one store of sessions. A part that is None is off."""

    def __init__(
        self,
        sessions: SessionManager,
        direct_access: DirectAccess | None,
        long_term: LongTermMemory | None,
        focus: FocusOfAttention | None,
        *,
        insights: int,
    ) -> None:
        """Put the parts together.

        Args:
            sessions: the session manager.
            direct_access: keeps notes; needed by the focus of attention, whose history it sums up.
            long_term: keeps insights.
            focus: makes the windows.
            insights: the most that a session begins with.
        """
        self.sessions, self.direct_access, self.long_term, self.focus = sessions, direct_access, long_term, focus
        self._insights = insights
        self._reviewer = ThreadPoolExecutor(1, thread_name_prefix="cogmem-review")
        self._lock = threading.Lock()
        self._reviewing: set[str] = set()
        self._looked_at_all = -math.inf

    def insights_for(self, user: str, asked: Sequence[str]) -> list[list[Insight]]:
        """What sessions that open with these inputs begin with."""
        if self.long_term is None:
            return [[] for _ in asked]
        return self.long_term.retrieve_all(user, asked, self._insights)

    def stored_insights(self, user: str, turns: Sequence[TurnRecord]) -> list[Insight]:
        """The insights that a dialogue began with, as they are now; one that was merged away is gone."""
        if self.long_term is None or not turns:
            return []
        return list(self.long_term.named(user, turns[-1].insights).values())

    def add(
        self,
        user: str,
        session: SessionRecord,
        said: Sequence[Said],
        *,
        asked: str | None = None,
        reply: str = "",
        label: str | None = None,
        insights: Sequence[str] = (),
        opening: str = "",
    ) -> tuple[SessionRecord, TurnRecord]:
        """Store a turn, then update the notes in the background. See :meth:`SessionManager.append`."""
        session, turn = self.sessions.append(
            user,
            session,
            said,
            asked=asked,
            reply=reply,
            label=label,
            insights=insights,
            opening=opening,
            is_pending=self.direct_access is not None,
        )
        if self.direct_access is not None:
            self.direct_access.submit(user, turn)
        return session, turn

    def read(self, user: str, head: str | None) -> tuple[TurnRecord, ...]:
        """The dialogue up to a turn, with notes and summaries where they are kept."""
        if self.direct_access is None:
            return self.sessions.turns(user, head)
        return self.direct_access.read(user, head)

    def review(self, user: str, turns: Sequence[TurnRecord]) -> None:
        """Let long-term memory take in what turns are worth."""
        if self.long_term is not None and turns:
            self.long_term.review(user, turns)

    def clean_up(self, user: str, *, wait: bool = False) -> None:
        """Review and remove the user's sessions that are over: set off by every event of the user, done in the background.

        Once in the lifetime of a session an event also sets this off for all who have not come back.

        Args:
            user: whose sessions.
            wait: come back when it is done; what fails is then raised.
        """
        with self._lock:
            now = self.sessions.now()
            if now - self._looked_at_all > self.sessions.lifetime:
                self._looked_at_all = now
                self._reviewer.submit(self._clean_up_all)
            if not wait and (user in self._reviewing or not self.sessions.over(user)):
                return
            self._reviewing.add(user)
        done = self._reviewer.submit(self._clean_up, user)
        if wait:
            done.result()

    def forget(self, user: str) -> None:
        """Remove everything about a user."""
        if self.direct_access is not None:
            self.direct_access.flush()
        # where the reviews run, so that none of them writes afterwards
        self._reviewer.submit(self._forget, user).result()

    def close(self) -> None:
        """Finish what runs in the background, then close the stores."""
        if self.direct_access is not None:
            self.direct_access.close()
        self._reviewer.shutdown(wait=True)
        if self.long_term is not None:
            self.long_term.close()
        self.sessions.store.close()

    def _forget(self, user: str) -> None:
        if self.long_term is not None:
            self.long_term.forget(user)
        self.sessions.store.delete_user(user)

    def _clean_up_all(self) -> None:
        for user in self.sessions.store.users():
            with suppress(Exception):  # it is logged, and the others are not to wait for it
                self._clean_up(user)

    def _clean_up(self, user: str) -> None:
        try:
            for session in self.sessions.over(user):
                # a crash before the removal brings the review again: what is stored already is left out then
                self.review(user, self.read(user, session.head))
                self.sessions.remove(user, session)
        except Exception:
            logger.exception("cogmem: a session was not reviewed; it stays, and the next event tries again")
            raise
        finally:
            with self._lock:
                self._reviewing.discard(user)
