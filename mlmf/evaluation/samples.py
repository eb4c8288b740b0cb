"""One record per answer, and the file they live in: ``samples.jsonl``.

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

Key = tuple[str, int, int]
LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class Sample:
    """What a system answered to one question, and what that cost. The gold side stays in the data, so scores follow it."""

    conversation_id: str
    index: int
    """Position among the conversation's questions; texts repeat, so they are no key."""
    id: str
    question: str
    period: int | None = None
    """The period after which it was asked, 1 to 6, where questions are asked after each of them."""
    seed: int = 0
    """Of the run that asked."""
    status: Literal["ok", "error"] = "ok"
    error: str | None = None
    """Why there is no answer."""
    prediction: str | None = None
    abstained: bool = False
    """Whether the system itself says that it declined to answer."""
    recalled: tuple[str, ...] = ()
    """Ids of the turns that were read for the answer, best first."""
    recalled_lines: tuple[str, ...] = ()
    """The first few of them as text."""
    gates: dict[str, float] = field(default_factory=dict)
    tokens_read: int = 0
    tokens_written: int = 0
    tokens_history: int = 0
    """Tokens of everything said before the question."""
    turns_history: int = 0
    """Turns of everything said before the question."""
    seconds: float = 0.0
    """Wall clock of the batch over the questions in it."""
    seconds_decoding: float = 0.0
    """Of these, writing all tokens but the first; 0 where that was not measured."""
    turns_left_out: int = 0
    """Turns that full_context had no room for."""
    seconds_ingest: float = 0.0
    """Wall clock of observing everything said before the question, once for the whole conversation."""
    memory_bytes: int = 0
    """Memory in use when the batch was answered: the peak of the device on a GPU, else what the process holds."""

    @property
    def key(self) -> Key:
        """What identifies the answer within its task: conversation, question, and the period it was asked after or 0."""
        return (self.conversation_id, self.index, self.period or 0)


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


def stored_samples(folder: Path, wanted: Mapping[str, Any]) -> tuple[list[Sample], dict[str, Any]]:
    """The answers that lie in the folder of a task and system, and the settings they were made with.

    Args:
        folder: of the task and system.
        wanted: settings that must be as they were, because scores read them.

    Raises:
        UserError: there are no answers, they were made under other settings, or a file is broken.
    """
    path = folder / "samples.jsonl"
    if not path.is_file():
        raise UserError(
            f"{path}: no such file, so there is nothing to score; run the same command without --score_only"
        )
    settings = _read_settings(folder / "settings.json")
    if isinstance(settings, str):
        raise UserError(f"{path}: nobody knows what these answers were made with: {settings}")
    changed = _differences({name: settings.get(name) for name in wanted}, wanted)
    if changed:
        raise UserError(f"{path} holds answers made under other settings ({'; '.join(changed)})")
    return read_samples(path), settings


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
            for name in ("recalled", "recalled_lines"):
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
    stored = _read_settings(path)
    return [stored] if isinstance(stored, str) else _differences(stored, settings)


def _read_settings(path: Path) -> dict[str, Any] | str:
    """The settings in a file, or why there are none."""
    if not path.exists():
        return "settings.json is missing"
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return "settings.json is broken"
    return stored


def _differences(stored: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """What differs, as ``name: old -> new``."""
    names = sorted({*stored, *settings})
    return [
        f"{name}: {stored.get(name)} -> {settings.get(name)}"
        for name in names
        if stored.get(name) != settings.get(name)
    ]
