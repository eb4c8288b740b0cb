"""The one exception meant for people: caught by the scripts, printed without a traceback, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user gave us is wrong. The message names the file, record, field and value, and the way out."""


def unknown_name(what: str, name: str, available: Iterable[str]) -> UserError:
    """``unknown system 'cogmen'. Did you mean 'cogmem'? Available: ...``."""
    options = sorted(available)
    close = difflib.get_close_matches(name, options, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UserError(f"unknown {what} {name!r}.{hint} Available: {', '.join(options)}")
