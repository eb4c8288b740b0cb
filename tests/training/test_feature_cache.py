from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.memory.features import SessionFeatures
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.training.feature_cache import FeatureCache
from mlmf.types import Conversation, Session


@pytest.fixture
def sessions(conversations: Sequence[Conversation]) -> list[Session]:
    return list(conversations[0].sessions)


def assert_equal(one: SessionFeatures, other: SessionFeatures) -> None:
    for name in ("codes", "keys", "tokens", "pieces"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_loaded_is_what_was_computed(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path, dtype: torch.dtype
) -> None:
    model = make_model(dtype=dtype)
    cache = FeatureCache(model, tmp_path)
    expected = model.features(sessions)
    assert cache.fill(sessions) == sum(features.n_tokens for features in expected)
    for session, features in zip(sessions, expected, strict=True):
        assert_equal(cache.load(session), features)
    assert cache.fill(sessions) == 0


def test_the_same_text_is_kept_once(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    cache = FeatureCache(make_model(), tmp_path)
    elsewhere = replace(sessions[0], index=7, turns=tuple(replace(t, id=f"x{t.id}") for t in sessions[0].turns))
    other_day = replace(sessions[0], date=None)
    assert cache.path(elsewhere) == cache.path(sessions[0]) != cache.path(other_day)
    cache.fill([sessions[0], elsewhere, other_day])
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


@pytest.mark.parametrize("content", [b"", b"half a fi"])
def test_a_damaged_file_is_computed_again(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path, content: bytes
) -> None:
    cache = FeatureCache(make_model(), tmp_path)
    expected = cache.load(sessions[0])
    whole = cache.path(sessions[0]).read_bytes()
    cache.path(sessions[0]).unlink()  # a loaded file is mapped into memory: cut in place, it would take us along
    cache.path(sessions[0]).write_bytes(content or whole[:-50])
    assert_equal(cache.load(sessions[0]), expected)
    assert cache.path(sessions[0]).read_bytes() == whole


def test_an_interrupted_fill_leaves_whole_files(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    cache = FeatureCache(model, tmp_path)
    read, calls = model.features, []

    def interrupted(batch: Sequence[Session]) -> list[SessionFeatures]:
        calls.append(len(batch))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return read(batch)

    monkeypatch.setattr(model, "features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.fill(sessions, batch=2)
    assert len(list(tmp_path.rglob("*.*"))) == 2
    cache.fill(sessions, batch=2)
    assert calls == [2, 2, 2, 1]


@torch.no_grad()
def test_another_model_or_choice_of_layers_has_its_own_features(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    first = FeatureCache(make_model(), tmp_path).path(sessions[0])
    assert FeatureCache(make_model(), tmp_path).path(sessions[0]) == first
    assert FeatureCache(make_model(fusion_layers=[1]), tmp_path).path(sessions[0]) != first
    assert FeatureCache(make_model(key_layer=1), tmp_path).path(sessions[0]) != first
    assert FeatureCache(make_model(dtype=torch.bfloat16), tmp_path).path(sessions[0]) != first


@torch.no_grad()
def test_weights_tuned_under_the_same_name_have_their_own_features(sessions: list[Session], tmp_path: Path) -> None:
    config = MLMFConfig(lora=LoraSettings(r=0))
    plain, tuned = tiny_model("llama"), tiny_model("llama")
    tuned.model.layers[0].mlp.up_proj.weight.mul_(1.1)  # the embeddings stay as they were
    paths = {
        FeatureCache(MLMFModel(lm, tiny_tokenizer(), config), tmp_path).path(sessions[0]) for lm in (plain, tuned)
    }
    assert len(paths) == 2


def test_another_calibration_has_its_own_features(
    make_model: Callable[..., MLMFModel], sessions: list[Session], tmp_path: Path
) -> None:
    model = make_model(code_dim=8)
    cache = FeatureCache(model, tmp_path)
    before = cache.load(sessions[0])
    layers, width = model.memory.codec.layers, model.memory.codec.width
    generator = torch.Generator().manual_seed(1)
    model.memory.calibrate(torch.randn(100, layers, width, generator=generator), torch.zeros(2, width))
    expected = model.features(sessions[:1])[0]
    assert not torch.equal(before.codes, expected.codes)
    assert_equal(cache.load(sessions[0]), expected)
    # keys are projected at each write, so what projects them does not matter
    path = cache.path(sessions[0])
    model.memory.key_projection.calibrate(torch.randn(100, width, generator=generator))
    assert cache.path(sessions[0]) == path
