"""How far something is that takes long, and how long it still takes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

logger = logging.getLogger(__name__)

LOGGED_EVERY = 60.0
"""Seconds between the lines of a log."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, and where there is none log a line a minute; yields what advances it.

    ``TQDM_DISABLE`` switches both off.
    """
    console = Console(stderr=True)
    if os.environ.get("TQDM_DISABLE", "0") not in ("", "0"):
        yield lambda count: None
    elif not console.is_terminal:
        yield _LoggedProgress(title, total).advance
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(title, total=total)
            yield lambda count: progress.advance(bar, count)


class _LoggedProgress:
    """Lines such as ``locomo, bm25, seed 0: 400 of 1,986, 5 min left``."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._done = self._done_then = 0
        self._then = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._then < LOGGED_EVERY:
            return
        # by the speed since the last line: what an earlier run finished is counted in no time
        left = (self._total - self._done) * (now - self._then) / max(1, self._done - self._done_then)
        logger.info("%s: %s of %s, %.0f min left", self._title, f"{self._done:,}", f"{self._total:,}", left / 60)
        self._then, self._done_then = now, self._done
