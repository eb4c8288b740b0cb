"""The downloader, against a server on this machine."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlmf.data.fetch import fetch_locomo, main
from mlmf.errors import UserError

BODY = b'[{"sample_id": "conv-26"}]' * 9000
SHA256 = hashlib.sha256(BODY).hexdigest()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def direct_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "locomo10.json").write_bytes(BODY)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_download_goes_to_the_cache_where_it_is_found(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path / "cache"))
    path = fetch_locomo(url=f"{server}/locomo10.json", sha256=SHA256)
    assert path == tmp_path / "cache" / "data" / "locomo" / "locomo10.json"
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_not_downloaded_again(server: str, closed_port: str, tmp_path: Path) -> None:
    path = fetch_locomo(tmp_path / "data", url=f"{server}/locomo10.json", sha256=SHA256)
    assert fetch_locomo(tmp_path / "data", url=closed_port, sha256=SHA256) == path
    path.write_bytes(b"damaged")
    fetch_locomo(tmp_path / "data", url=f"{server}/locomo10.json", sha256=SHA256)
    assert path.read_bytes() == BODY


def test_other_bytes_are_refused_and_nothing_is_left(server: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="other bytes than the official file") as caught:
        fetch_locomo(tmp_path / "data", url=f"{server}/locomo10.json")
    assert SHA256 in str(caught.value)
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


def test_the_servers_refusal_is_passed_on(server: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the server says 404"):
        fetch_locomo(tmp_path / "data", url=f"{server}/elsewhere.json", sha256=SHA256)


def test_offline_is_one_line_and_exit_code_2(
    closed_port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["locomo", "--output_dir", str(tmp_path / "data"), "--url", f"{closed_port}/locomo10.json"]) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: cannot download") and "no connection" in lines[0]
    assert "locomo10.json" in lines[0] and captured.out == ""
    assert not (tmp_path / "data" / "locomo" / "locomo10.json").exists()


def test_the_licence_is_printed(
    locomo_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], closed_port: str
) -> None:
    target = tmp_path / "locomo" / "locomo10.json"
    target.parent.mkdir()
    target.write_bytes(locomo_file.read_bytes())
    assert main(["locomo", "--output_dir", str(tmp_path), "--url", closed_port]) == 0
    printed = capsys.readouterr().out
    assert str(target) in printed and "CC BY-NC 4.0" in printed and f"MLMF_DATA={tmp_path}" in printed
