"""Where files are looked for, and how they are written so that nobody ever sees half of one."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlmf.errors import UserError


def cache_dir() -> Path:
    """The user's cache: ``MLMF_CACHE``, else ``~/.cache/mlmf``. Not created here."""
    chosen = os.environ.get("MLMF_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "mlmf"


def data_dirs() -> tuple[Path, ...]:
    """Folders that may hold benchmark files, first choice first.

    ``MLMF_DATA`` if it is set, else ``shared/data`` beside the repository if there is one; then ``data`` in the cache.

    Raises:
        UserError: ``MLMF_DATA`` is not a folder.
    """
    cached = cache_dir() / "data"
    chosen = os.environ.get("MLMF_DATA")
    if chosen:
        folder = Path(chosen).expanduser()
        if not folder.is_dir():
            raise UserError(f"MLMF_DATA={chosen} is not a folder; create it, or unset MLMF_DATA to use {cached}")
        return (folder, cached)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return (beside, cached) if beside.is_dir() else (cached,)


def find_data(relative: str, how_to_get: str) -> Path:
    """First existing ``relative`` file in :func:`data_dirs`.

    Args:
        relative: path inside a data folder, such as ``locomo/locomo10.json``.
        how_to_get: what the reader of the error can do, such as ``run python -m mlmf.data.fetch locomo``.

    Raises:
        UserError: no folder has it; the message names every folder that was looked in.
    """
    folders = data_dirs()
    for folder in folders:
        if (folder / relative).is_file():
            return folder / relative
    looked_in = ", ".join(str(folder) for folder in folders)
    raise UserError(
        f"{relative} not found. Looked in: {looked_in}. To get it, {how_to_get}; if you have it, set MLMF_DATA to its data folder"
    )


def sha256_of(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_writable_folder(path: Path, setting: str) -> None:
    """Check that a folder can be written, or made and then written, without touching the disk.

    Args:
        path: the folder; it need not exist.
        setting: what the user calls it, such as ``output_dir``; starts the message of the error.

    Raises:
        UserError: ``path`` or the nearest thing above it is no folder, or may not be written.
    """
    absolute = path.absolute()
    # lexists, because a link that leads nowhere stands in the way as well
    nearest = next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise UserError(f"{setting} {path}: {nearest} is not a folder; choose another {setting}")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UserError(
            f"{setting} {path}: {nearest} cannot be written; choose another {setting} or allow writing there"
        )


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` to write to, and move it into place if the block succeeds.

    Parent folders are created. If the block raises, the temporary file is removed and ``path`` is as it was. The
    temporary name keeps the suffix, because writers such as ``numpy.save`` go by it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder beside ``path`` to fill, and put it in its place if the block succeeds.

    What stood there before is removed only once the new folder is complete; if the block raises, it stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            old = temporary.with_name(f"{temporary.name}.old")
            os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, all or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, line ends as they are, all or nothing."""
    atomic_write_bytes(path, text.encode())
