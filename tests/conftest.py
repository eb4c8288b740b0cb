"""Environment and shared models of the tests. Nothing here or in a test reaches the internet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

# read when the libraries are imported, so they are set before the imports below
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    WANDB_MODE="disabled",
    TOKENIZERS_PARALLELISM="false",
    TQDM_DISABLE="1",
)

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.import_utils import is_serve_available

from mlmf import hub
from mlmf.base_model import load_base, resolve_base
from mlmf.tiny import tiny_model, tiny_tokenizer

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each worker has one core


@pytest.fixture(scope="session")
def tiny_lm() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A random 4-layer Llama (float32) and the byte-level tokenizer; shared, so a test that changes it copies it."""
    return tiny_model("llama"), tiny_tokenizer()


@pytest.fixture(scope="session")
def smollm2() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The real base model in bfloat16; shared, so a test that changes it copies it. ``make test`` has fetched it."""
    return load_base("smollm2-135m", dtype=torch.bfloat16)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without models, which the hub's own cache does not fill either."""
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_hub_cached", lambda hub_id: None)
    return tmp_path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with a small random model and its tokenizer, as ``save_pretrained`` leaves them."""
    folder = tmp_path / "saved"
    tiny_model("gpt2", layers=2).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class ModelServer:
    """A server that speaks OpenAI's protocol, and the one model that it has."""

    url: str
    model: str


@pytest.fixture(scope="session")
def model_server(
    tiny_lm: tuple[PreTrainedModel, PreTrainedTokenizerBase], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelServer]:
    """``transformers serve`` with the tiny model."""
    folder = tmp_path_factory.mktemp("served")
    for part in tiny_lm:
        part.save_pretrained(folder)
    with _serving(str(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_server() -> Iterator[ModelServer]:
    """``transformers serve`` with the real base model."""
    with _serving(resolve_base("smollm2-135m")) as server:
        yield server


@contextmanager
def _serving(model: str) -> Iterator[ModelServer]:
    """The server as a user starts it: its command line is what stays the same from version to version."""
    if not is_serve_available():
        pytest.skip("transformers serve is not installed: pip install 'transformers[serving]'")
    port = _free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", model, "--port", str(port)]
    command += ["--host", "127.0.0.1", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield _ready(port, model)
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(port: int, model: str) -> ModelServer:
    """Wait until the server answers."""
    for _ in range(1200):
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return ModelServer(f"http://127.0.0.1:{port}/v1", model)
        except URLError:
            time.sleep(0.1)
    raise RuntimeError(f"no model server on port {port}")
