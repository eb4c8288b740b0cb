"""``python -m mlmf.data.fetch locomo``: download what the package may not contain, and check every byte of it.

LoCoMo is CC BY-NC 4.0, so it comes from its authors' repository, at the commit that every figure here refers to.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from mlmf.data.locomo import LOCOMO_FILE, LOCOMO_SHA256
from mlmf.errors import UserError
from mlmf.paths import atomic_path, cache_dir, sha256_of

LOCOMO_URL = "https://raw.githubusercontent.com/snap-research/locomo/3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json"
LOCOMO_LICENCE = "LoCoMo (Maharana et al., ACL 2024) is licensed CC BY-NC 4.0: not for commercial use."
CONNECT_SECONDS, READ_SECONDS = 5, 30


def fetch_locomo(output_dir: Path | None = None, *, url: str = LOCOMO_URL, sha256: str = LOCOMO_SHA256) -> Path:
    """Download the official ``locomo10.json`` unless it is already there.

    Args:
        output_dir: data folder; the file goes to ``locomo/locomo10.json`` in it. Default: ``data`` in the user's cache,
            where :func:`mlmf.paths.find_data` looks.
        url: where to download from.
        sha256: what the downloaded bytes must have.

    Returns:
        Path of the file.

    Raises:
        UserError: no connection, an answer that is no file, or other bytes; nothing is left behind then.
    """
    target = (output_dir or cache_dir() / "data") / LOCOMO_FILE
    if target.is_file() and sha256_of(target) == sha256:
        return target
    try:
        with atomic_path(target) as temporary:
            found = _download(url, temporary)
            if found != sha256:
                raise UserError(f"{url} gave other bytes than the official file: sha256 {found}, expected {sha256}")
    except requests.RequestException as error:
        raise UserError(
            f"cannot download {url} ({_reason(error)}). Copy the file from a connected machine to {target}, "
            "or give another address with --url"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot write {target} ({error.strerror}); choose another folder with --output_dir"
        ) from error
    return target


def _download(url: str, path: Path) -> str:
    """Stream ``url`` to ``path`` under a progress bar; returns the sha256 of what was written."""
    digest = hashlib.sha256()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        requests.get(
            url,
            stream=True,
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            headers={
                "Accept-Encoding": "identity"
            },  # else content-length counts compressed bytes and the bar overruns
        ) as response,
        Progress(*columns, console=Console(stderr=True)) as progress,
        path.open("wb") as file,
    ):
        response.raise_for_status()
        size = response.headers.get("content-length")
        task = progress.add_task(Path(url).name, total=int(size) if size else None)
        for block in response.iter_content(1 << 16):
            digest.update(block)
            file.write(block)
            progress.advance(task, len(block))
    return digest.hexdigest()


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server says {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code: 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.data.fetch", description="Download benchmark data.")
    parser.add_argument("dataset", choices=["locomo"], help="what to download")
    parser.add_argument("--output_dir", type=Path, help="data folder (default: data in the mlmf cache)")
    parser.add_argument(
        "--url", default=LOCOMO_URL, help="mirror to download from; the sha256 is checked all the same"
    )
    options = parser.parse_args(arguments)
    try:
        path = fetch_locomo(options.output_dir, url=options.url)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{path}\n{LOCOMO_LICENCE}")
    if options.output_dir:
        print(f"To have it found there: export MLMF_DATA={options.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
