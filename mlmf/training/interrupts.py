"""Ctrl-C and SIGTERM: the first one lets a step end and be saved, the second stops at once."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger(__name__)


class Interrupts:
    """While it lasts, the first signal asks for a stop; outside of the main thread, where none arrives, it does nothing."""

    def __init__(self, request_stop: Callable[[], bool]) -> None:
        """``request_stop`` says whether the stop is a new one."""
        self.request_stop = request_stop

    def __enter__(self) -> None:
        """Take the signals over."""
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            self.before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.request_stop():
            raise KeyboardInterrupt
        logger.info("stopping after this step, its state will be saved; once more to stop at once")
