"""Where files are looked for, and that nothing half-written is ever left."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.paths import (
    atomic_path,
    atomic_write_bytes,
    atomic_write_text,
    cache_dir,
    check_writable_folder,
    data_dirs,
    find_data,
    sha256_of,
)


def test_cache_dir_follows_the_environment_and_falls_back_to_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.setenv("MLMF_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert cache_dir() == tmp_path / "me" / ".cache" / "mlmf"


def test_find_data_prefers_mlmf_data_and_then_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine, cache = tmp_path / "mine", tmp_path / "cache"
    mine.mkdir()
    monkeypatch.setenv("MLMF_DATA", str(mine))
    monkeypatch.setenv("MLMF_CACHE", str(cache))
    assert data_dirs() == (mine, cache / "data")
    atomic_write_text(cache / "data" / "set" / "a.json", "cached")
    assert find_data("set/a.json", "ask").read_text() == "cached"
    atomic_write_text(mine / "set" / "a.json", "chosen")
    assert find_data("set/a.json", "ask").read_text() == "chosen"


def test_find_data_names_every_folder_and_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLMF_DATA", str(tmp_path))
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError) as caught:
        find_data("set/a.json", "run the fetcher")
    for part in ("set/a.json", str(tmp_path), str(tmp_path / "cache" / "data"), "run the fetcher", "MLMF_DATA"):
        assert part in str(caught.value)


def test_a_misspelt_mlmf_data_is_an_error_not_a_fallback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLMF_DATA", str(tmp_path / "misspelt"))
    with pytest.raises(UserError, match=r"MLMF_DATA=.*misspelt is not a folder"):
        data_dirs()


def test_sha256_of_a_file_of_several_blocks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "big").write_bytes(data)
    assert sha256_of(tmp_path / "big") == hashlib.sha256(data).hexdigest()


def test_atomic_writes_create_folders_replace_files_and_leave_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "file.txt"
    atomic_write_text(target, "é\n")
    atomic_write_bytes(target, b"second")
    assert target.read_bytes() == b"second"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".json"
        temporary.write_text("half of the n")
        raise RuntimeError("disk full")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_written_files_get_the_permissions_of_ordinary_files(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("x")
    atomic_write_text(tmp_path / "atomic", "x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_a_folder_that_can_be_made_is_accepted_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, tmp_path / "new" / "deep", Path("relative") / "deep", Path()):
        check_writable_folder(path, "output_dir")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "file/under", "link", "link/under"):
        blocked = tmp_path / name.split("/")[0]
        with pytest.raises(UserError, match=f"^output_dir {tmp_path / name}: {blocked} is not a folder"):
            check_writable_folder(tmp_path / name, "output_dir")
    # root may write everywhere, so the refusal of the system is put in its place
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(UserError, match=f"^output_dir {tmp_path / 'new'}: {tmp_path} cannot be written"):
        check_writable_folder(tmp_path / "new", "output_dir")
