"""One record per question and answer, and the file they live in: ``samples.jsonl``.

The file grows batch by batch, so a stopped run loses at most one batch. Beside it lies ``settings.json``: samples made
under other settings are never mixed in.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from mlmf.errors import UserError
from mlmf.paths import atomic_write_text

Key = tuple[str, int]
LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class Sample:
    """A question with its gold side, what the system answered, and what that cost."""

    conversation_id: str
    index: int
    """Position among the conversation's questions; with the conversation the key, because texts repeat."""
    id: str
    question: str
    gold: str | None
    category: int | None
    is_trap: bool
    evidence: tuple[str, ...] = ()
    """Ids of the turns that hold the answer, where every one of them is known; else empty."""
    status: Literal["ok", "error"] = "ok"
    error: str | None = None
    """Why there is no answer."""
    prediction: str | None = None
    score: float | None = None
    """Token F1 (LoCoMo: the official one); on a trap 1 for abstaining and 0 for a claim. Null on an error."""
    abstained: bool = False
    recalled: tuple[str, ...] = ()
    """Ids of the turns that were read for the answer, best first."""
    recalled_lines: tuple[str, ...] = ()
    """The first few of them as text."""
    gates: dict[str, float] = field(default_factory=dict)
    tokens_read: int = 0
    tokens_written: int = 0
    tokens_history: int = 0
    """Tokens of everything said before the question."""
    seconds: float = 0.0
    """Wall clock of the batch over the questions in it."""
    turns_left_out: int = 0
    """Turns that full_context had no room for."""

    @property
    def key(self) -> Key:
        """What identifies the question within its task."""
        return (self.conversation_id, self.index)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep other runs out of the folder of a task and system while the block runs.

    The folder is made, and the lock file stays in it: removing that could take the lock from the next run. A process that
    dies gives its lock back.

    Raises:
        UserError: another run is at work there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UserError(
            f"{folder}: another run is writing here; wait until it ends, or give another --output_dir"
        ) from error
    try:
        yield
    finally:
        lock.release()


class SampleFile:
    """``samples.jsonl`` of one system on one task: checked when it is opened, written from the first batch on."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
        """Read what an earlier run left.

        Args:
            folder: the folder of this task and system; created when there is something to write.
            settings: everything that may change an answer; JSON values only.
            overwrite: discard what the folder holds and start anew.

        Raises:
            UserError: the folder holds samples of other settings, or a file there is broken.
        """
        self.path = folder / "samples.jsonl"
        self.finished: dict[Key, Sample] = {}
        self._settings = dict(settings)
        self._is_started = False
        if self.path.exists() and not overwrite:
            changed = _changed_settings(folder / "settings.json", settings)
            if changed:
                raise UserError(
                    f"{self.path} holds answers made under other settings ({'; '.join(changed)}). "
                    "Give another --output_dir, or --overwrite true to discard them"
                )
            self.finished = {sample.key: sample for sample in read_samples(self.path) if sample.status == "ok"}

    def append(self, samples: Sequence[Sample]) -> None:
        """Add a batch in one write, and wait until it is on the disk."""
        if not self._is_started:
            self._start()
        with self.path.open("ab", buffering=0) as file:
            file.write(_lines(samples).encode())
            os.fsync(file.fileno())

    def _start(self) -> None:
        # failed questions are asked again, so their lines go; so does a last line that an interruption cut
        atomic_write_text(self.path, _lines(list(self.finished.values())))
        settings = json.dumps(self._settings, indent=2, sort_keys=True)
        atomic_write_text(self.path.with_name("settings.json"), f"{settings}\n")
        self._is_started = True


def read_samples(path: Path) -> list[Sample]:
    """Read a ``samples.jsonl``; a last line without its line end is an interrupted write and is left out.

    Raises:
        UserError: a line is not a sample; names file and line.
    """
    samples = []
    *lines, _unfinished = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            for name in ("evidence", "recalled", "recalled_lines"):
                values[name] = tuple(values[name])
            samples.append(Sample(**values))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path}:{number}: not a sample of this version ({error}); use --overwrite true"
            ) from error
    return samples


def _lines(samples: Sequence[Sample]) -> str:
    rows = (json.dumps(dataclasses.asdict(sample), ensure_ascii=False, allow_nan=False) for sample in samples)
    return "".join(f"{row}\n" for row in rows)


def _changed_settings(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """What differs from the settings in a file, as ``name: old -> new``."""
    if not path.exists():
        return ["settings.json is missing"]
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return ["settings.json is broken"]
    names = sorted({*stored, *settings})
    return [
        f"{name}: {stored.get(name)} -> {settings.get(name)}"
        for name in names
        if stored.get(name) != settings.get(name)
    ]
