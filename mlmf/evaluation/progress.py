"""A bar with the time left, for what takes long."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal only; ``TQDM_DISABLE`` switches it off there, too. Yields what advances it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    disable = not console.is_terminal or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    with Progress(*columns, console=console, disable=disable) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda count: progress.advance(bar, count)
