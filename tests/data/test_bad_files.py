"""Files that are wrong as a whole: absent, empty, not UTF-8, not JSON. Every reader says so in the same way."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from mlmf.data.jsonl import load_jsonl
from mlmf.data.locco import load_locco, load_probes
from mlmf.data.locomo import load_locomo
from mlmf.data.locomo_audit import load_audit
from mlmf.data.longmemeval import load_longmemeval
from mlmf.data.msc import load_msc_file
from mlmf.errors import UserError
from mlmf.evaluation.consistency import load_labels


def _locomo(path: Path) -> object:
    return load_locomo(path, allow_unknown_data=True)


def _locco(path: Path) -> object:
    return load_locco(path=path)


LOADERS: dict[str, Callable[[Path], object]] = {
    "jsonl": load_jsonl,
    "probes": load_probes,
    "msc": load_msc_file,
    "locco": _locco,
    "locomo": _locomo,
    "longmemeval": load_longmemeval,
    "audit": load_audit,
    "labels": load_labels,
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"id": "a", ', r"not valid JSON: .* \(line 1, column"),
        (b"[\xff]", r"not UTF-8 \(byte 1\); save it with UTF-8 encoding"),
        (b"[" * 100_000, "not usable JSON: nested too deeply"),
        (b"9" * 10_000, "not usable JSON|must be a JSON"),
    ],
    ids=["json", "encoding", "depth", "number"],
)
def test_unreadable_content(tmp_path: Path, loader: str, content: bytes, fault: str) -> None:
    path = tmp_path / "bad.file"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"bad\.file(:1)?: ({fault})"):
        LOADERS[loader](path)


@pytest.mark.parametrize("loader", LOADERS)
def test_absent_files_and_folders(tmp_path: Path, loader: str) -> None:
    with pytest.raises(UserError, match=r"absent\.file: no such file"):
        LOADERS[loader](tmp_path / "absent.file")
    with pytest.raises(UserError, match="cannot be read"):
        LOADERS[loader](tmp_path)


@pytest.mark.parametrize(
    ("loader", "content"),
    [
        ("jsonl", "\n"),
        ("probes", ""),
        ("msc", "\n\n"),
        ("locomo", "[]"),
        ("locco", "[]"),
        ("longmemeval", "[]"),
        ("audit", "[]"),
        ("labels", ""),
    ],
)
def test_empty_files_are_no_data_sets(tmp_path: Path, loader: str, content: str) -> None:
    path = tmp_path / "empty.file"
    path.write_text(content)
    with pytest.raises(
        UserError, match=r"empty\.file: holds no (conversation|probe|audited question|labelled answer)"
    ):
        LOADERS[loader](path)


@pytest.mark.parametrize(
    ("loader", "noun"),
    [("locomo", "samples"), ("locco", "users"), ("longmemeval", "questions"), ("audit", "audited questions")],
)
@pytest.mark.parametrize("content", ["{}", '"text"', "null"])
def test_json_that_is_no_list(tmp_path: Path, loader: str, noun: str, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"bad\.json: must be a JSON list of {noun}.* got {content}"):
        LOADERS[loader](path)


def test_json_lines_errors_give_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a", "sessions": [{"turns": [{"speaker": "A", "text": "x"}]}]}\n\n{oops\n')
    with pytest.raises(UserError, match=r"^bad\.jsonl:3: not valid JSON"):
        load_jsonl(path)


PACKED = gzip.compress(b"[" + bytes(range(256)) + b"]", mtime=0)


@pytest.mark.parametrize("content", [b"text", PACKED[:-9], PACKED[:40] + b"\xff\xff" + PACKED[42:]])
def test_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.json\.gz: cannot be read as gzip"):
        load_locco(path=path)


@pytest.mark.parametrize("loader", LOADERS)
def test_a_path_may_be_a_string(tmp_path: Path, loader: str) -> None:
    with pytest.raises(UserError, match=r"absent\.file: no such file"):
        LOADERS[loader](str(tmp_path / "absent.file"))  # type: ignore[arg-type]
