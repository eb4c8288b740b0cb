"""The table of tasks: a name to conversations, and what a report must say about where they came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mlmf.data.jsonl import load_jsonl
from mlmf.data.locco import (
    FILES,
    LOCCO_FILES,
    LOCCO_SHA256,
    PROBE_FILES,
    PROBE_SHA256,
    Size,
    load_locco,
    load_probes,
    with_probes,
)
from mlmf.data.locomo import HOW_TO_GET_LOCOMO, LOCOMO_FILE, LOCOMO_SHA256, load_locomo
from mlmf.data.longmemeval import HOW_TO_GET_LONGMEMEVAL, load_longmemeval
from mlmf.data.msc import load_msc_file, msc_files
from mlmf.data.synthetic import recall_conversations
from mlmf.errors import UserError, unknown_name
from mlmf.paths import find_data, sha256_of
from mlmf.types import Conversation

UNTESTED = "untested"
"""Split of LOCCO for learning from dialogues: every user the test probes do not ask about."""
RECALL_SIZES = {"train": 400, "test": 40}
"""Conversations in each split of ``recall``; for more, see :func:`mlmf.data.synthetic.recall_conversations`."""
RECALL_SHA256 = {
    "train": "24302c82f1791406f781a5c42eeab7051d8ec370b3d48097656388f4493b4bf7",
    "test": "98391915766c9d495adf9c51e601e0f06e5b362cfa1fdbab664cbd68cff5a29b",
}
"""Of the records of each split: they are the same on every machine, or the report says that they are not."""


@dataclass(frozen=True, slots=True)
class LoadedData:
    """Conversations of a task and their provenance. File names carry no folders, so that results can be shared."""

    task: str
    conversations: tuple[Conversation, ...]
    source: str
    """Name of the file; several are joined by `` + ``."""
    sha256: str
    """Of the file's bytes (uncompressed for LOCCO); several files are hashed one after the other."""
    is_pinned: bool
    """True where dialogues and questions are byte for byte those this package was written for."""
    probes_source: str | None = None
    """Name of the file the questions came from, where it is another."""
    probes_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    task: str
    data_file: Path | None
    probes: Path | None
    split: str | None
    allow_unknown_data: bool
    captions: bool


def load_task(
    name: str,
    *,
    data_file: Path | str | None = None,
    probes: Path | str | None = None,
    split: str | None = None,
    allow_unknown_data: bool = False,
    captions: bool = True,
) -> LoadedData:
    """Load a task by name.

    * ``locco``: the users that the probes of ``split`` (``test`` by default, or ``train``) ask about; of the split
      ``untested`` all 88 users but those of ``test``, 40 of them with the training probes. ``probes`` replaces these by a file of one's own; ``data_file`` replaces the dialogues and comes without questions unless
      ``probes`` brings some.
    * ``locco_l``: the 20 long histories, without questions unless ``probes`` brings some.
    * ``locomo``: all ten conversations, or ``data_file`` in LoCoMo's layout.
    * ``msc``: sessions 2 and 3 of ``split`` (``valid`` by default), or ``data_file``; no questions.
    * ``longmemeval``: ``data_file``, one of the benchmark's files or another in its layout.
    * ``recall``: invented dialogues made by :mod:`mlmf.data.synthetic`, the ``test`` ones by default, or ``train``.
    * ``jsonl``: ``data_file`` in the format of :mod:`mlmf.data.jsonl`.

    Args:
        name: one of :data:`TASKS`.
        data_file: a file to read in place of the task's own.
        probes: a file of LOCCO probes.
        split: part of the task's own data.
        allow_unknown_data: accept a ``data_file`` that differs from the release pinned for ``locomo``, ``locco`` and
            ``locco_l``.
        captions: keep what the shared pictures of ``locomo`` show; the other tasks have none or bring their own.

    Raises:
        UserError: unknown task, an argument the task has no use for, or anything wrong with a file.
    """
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    request = _Request(
        name,
        Path(data_file) if data_file else None,
        Path(probes) if probes else None,
        split,
        allow_unknown_data,
        captions,
    )
    if request.probes and name not in ("locco", "locco_l"):
        raise UserError(
            f"probes: are questions about LOCCO users; task {name!r} takes its questions from its data file"
        )
    if split and (request.data_file or request.probes or name not in ("locco", "msc", "recall")):
        raise UserError(
            f"split: {split!r} has no meaning here; only locco and msc on their own files, and recall, have splits"
        )
    return TASKS[name](request)


def _locco(request: _Request) -> LoadedData:
    size: Size = "long" if request.task == "locco_l" else "standard"
    path = request.data_file
    file = path.name if path else LOCCO_FILES[size].removesuffix(".gz")
    conversations = load_locco(size, path=path)
    digest = sha256_of(path) if path else LOCCO_SHA256[size]
    is_pinned = digest == LOCCO_SHA256[size]
    if not is_pinned and not request.allow_unknown_data:
        raise UserError(
            f"{path}: not the released {LOCCO_FILES[size].removesuffix('.gz')}: sha256 {digest}, expected "
            f"{LOCCO_SHA256[size]}; to use this file as it is, pass --allow_unknown_data"
        )
    data = LoadedData(request.task, conversations, file, digest, is_pinned)
    if request.probes:
        return _ask(data, request.probes, is_pinned=False)
    if path or size == "long":
        return data
    split = request.split or "test"
    if split not in (*PROBE_FILES, UNTESTED):
        raise unknown_name("split of locco", split, (*PROBE_FILES, UNTESTED))
    of = "train" if split == UNTESTED else split
    probes = FILES / PROBE_FILES[of]
    asked = _ask(data, probes, is_pinned=sha256_of(probes) == PROBE_SHA256[of])
    if split != UNTESTED:
        return asked
    with_questions = {one.id: one for one in asked.conversations}
    tested = {str(probe.user) for probe in load_probes("test")}
    kept = (with_questions.get(one.id, one) for one in data.conversations if one.id not in tested)
    return replace(asked, conversations=tuple(kept))


def _ask(data: LoadedData, probes: Path, *, is_pinned: bool) -> LoadedData:
    """Only the users whom the probes ask about, with the probes as their questions."""
    asked = with_probes(data.conversations, load_probes(probes))
    return replace(
        data,
        conversations=tuple(one for one in asked if one.questions),
        is_pinned=is_pinned,
        probes_source=probes.name,
        probes_sha256=sha256_of(probes),
    )


def _locomo(request: _Request) -> LoadedData:
    path = request.data_file or find_data(LOCOMO_FILE, HOW_TO_GET_LOCOMO)
    conversations = load_locomo(path, captions=request.captions, allow_unknown_data=request.allow_unknown_data)
    digest = sha256_of(path)
    return LoadedData(request.task, conversations, path.name, digest, is_pinned=digest == LOCOMO_SHA256)


def _longmemeval(request: _Request) -> LoadedData:
    path = request.data_file
    if path is None:
        raise UserError(
            f"data_file: task 'longmemeval' needs one; {HOW_TO_GET_LONGMEMEVAL}, and none ships with this package"
        )
    return LoadedData(request.task, load_longmemeval(path), path.name, sha256_of(path), is_pinned=False)


def _msc(request: _Request) -> LoadedData:
    paths = (request.data_file,) if request.data_file else msc_files(request.split or "valid")
    conversations = tuple(conversation for path in paths for conversation in load_msc_file(path))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    return LoadedData(request.task, conversations, " + ".join(path.name for path in paths), digest, is_pinned=False)


def _recall(request: _Request) -> LoadedData:
    if request.data_file:
        raise UserError(
            f"data_file: task 'recall' makes its dialogues itself; to read {request.data_file}, use task 'jsonl'"
        )
    split = request.split or "test"
    if split not in RECALL_SIZES:
        raise unknown_name("split of recall", split, RECALL_SIZES)
    conversations = recall_conversations(split, RECALL_SIZES[split])
    content = json.dumps([asdict(one) for one in conversations], default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return LoadedData(request.task, conversations, f"recall {split}", digest, is_pinned=digest == RECALL_SHA256[split])


def _jsonl(request: _Request) -> LoadedData:
    path = request.data_file
    if path is None:
        raise UserError("data_file: task 'jsonl' needs one; `python -m pydoc mlmf.data.jsonl` describes the format")
    return LoadedData(request.task, load_jsonl(path), path.name, sha256_of(path), is_pinned=False)


TASKS: dict[str, Callable[[_Request], LoadedData]] = {
    "locco": _locco,
    "locco_l": _locco,
    "locomo": _locomo,
    "longmemeval": _longmemeval,
    "msc": _msc,
    "recall": _recall,
    "jsonl": _jsonl,
}
