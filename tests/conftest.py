"""Environment and shared models of the tests. Nothing here or in a test reaches the internet."""

from __future__ import annotations

import os
from pathlib import Path

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

from mlmf import hub
from mlmf.base_model import load_base
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
