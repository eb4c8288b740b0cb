from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.memory.features import SessionStates
from mlmf.model import MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

ARCHITECTURES: list[Architecture] = ["llama", "gpt2", "qwen2"]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def session(index: int, *texts: str) -> Session:
    turns = tuple(Turn(f"D{index}:{i}", ("Anna", "Ben")[i % 2], text) for i, text in enumerate(texts))
    return Session(index, datetime(2023, 5, 8), turns)


SESSIONS = [
    session(0, "I adopted a cat", "Lovely!"),
    session(1, "Hi"),
    session(2, "A much longer turn than those", ""),
]


def wrap(architecture: Architecture = "llama") -> MLMFModel:
    return MLMFModel(tiny_model(architecture), tiny_tokenizer(), MLMFConfig(lora=LoraSettings(r=4))).eval()


def assert_close(one: SessionStates, other: SessionStates) -> None:
    torch.testing.assert_close(one.states, other.states, **TOLERANCE)
    torch.testing.assert_close(one.keys, other.keys, **TOLERANCE)
    assert torch.equal(one.tokens, other.tokens) and torch.equal(one.pieces, other.pieces)


def n_hooks(model: MLMFModel) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_states_are_the_base_models_hidden_states_without_the_first_token(architecture: Architecture) -> None:
    model, tokenizer = wrap(architecture), tiny_tokenizer()
    for one, features in zip(SESSIONS, model.encoder.encode(SESSIONS), strict=True):
        lines = ["[8 May 2023]\n", *(f"{turn.speaker}: {turn.content}\n" for turn in one.turns)]
        ids = tokenizer("".join(lines))["input_ids"]
        hidden = tiny_model(architecture)(torch.tensor([ids]), output_hidden_states=True).hidden_states
        for number, layer in enumerate(model.fusion_layers):
            torch.testing.assert_close(features.states[number], hidden[layer][0, 1:], **TOLERANCE)
        torch.testing.assert_close(features.keys, hidden[model.key_layer][0, 1:], **TOLERANCE)
        assert features.tokens.tolist() == ids[1:]
        assert features.pieces.tolist() == [i for i, line in enumerate(lines) for _ in line.encode()][1:]
        assert len(features.tokens) == len(ids) - 1


@torch.no_grad()
def test_states_of_smollm2(smollm2: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    lm, tokenizer = smollm2
    model = MLMFModel(lm, tokenizer, MLMFConfig(lora=LoraSettings(r=0))).eval()
    try:
        features = model.encoder.encode(SESSIONS[:1])[0]
    finally:  # the fixture is shared: take the fusion hooks off again
        for layer in model.encoder.layers:
            layer._forward_pre_hooks.clear()
            layer._forward_pre_hooks_with_kwargs.clear()
    text = "[8 May 2023]\nAnna: I adopted a cat\nBen: Lovely!\n"
    hidden = lm(torch.tensor([tokenizer(text)["input_ids"]]), output_hidden_states=True).hidden_states
    for number, layer in enumerate((8, 12, 16, 20, 24)):
        assert torch.equal(features.states[number], hidden[layer][0, 1:])
    assert torch.equal(features.keys, hidden[6][0, 1:])
    assert tokenizer.decode(features.tokens[features.pieces == 1]) == "Anna: I adopted a cat\n"


@torch.no_grad()
def test_sessions_read_together_are_those_read_alone() -> None:
    encoder = wrap().encoder
    for batch_tokens in (1, 100, 4096):
        for one, features in zip(SESSIONS, encoder.encode(SESSIONS, batch_tokens), strict=True):
            assert_close(features, encoder.encode([one])[0])
    assert encoder.encode([]) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_adapters_and_memory_do_not_colour_what_is_read(architecture: Architecture) -> None:
    model = wrap(architecture)
    expected = model.encoder.encode(SESSIONS)
    for name, parameter in model.named_parameters():
        if "lora_B" in name or name.endswith(".g"):
            parameter.normal_()
    state = model.remember(SESSIONS[:1], model.init_state())
    ids = torch.tensor([[5, 6, 7, 8]])
    before = model(ids, state=state).logits
    for features, wanted in zip(model.encoder.encode(SESSIONS), expected, strict=True):
        assert_close(features, wanted)
    # and reading does not switch them off for what follows
    assert torch.equal(model(ids, state=state).logits, before)
    assert not torch.allclose(before, tiny_model(architecture)(ids).logits, atol=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_mode_and_trainable_parameters_are_as_before(training: bool) -> None:
    model = wrap().train(training)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    hooks = n_hooks(model)
    features = model.encoder.encode(SESSIONS[:1])[0]
    assert model.lm.training is training
    assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == trained
    assert n_hooks(model) == hooks
    assert not features.states.requires_grad


def test_a_failure_leaves_no_hook_and_adapters_on() -> None:
    model = wrap().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    ids, hooks = torch.tensor([[5, 6]]), n_hooks(model)
    before = model(ids).logits
    with pytest.raises(IndexError):
        model.encoder.states(torch.tensor([[10**6]]), [0])
    assert n_hooks(model) == hooks and model.lm.training
    assert torch.equal(model(ids).logits, before)


def test_layers_above_the_last_wanted_one_are_not_computed() -> None:
    model = wrap()
    ran: list[int] = []
    handles = [
        layer.register_forward_hook(lambda *_, i=i: ran.append(i)) for i, layer in enumerate(model.encoder.layers)
    ]
    captured = model.encoder.states(torch.tensor([[5, 6, 7]]), [0, 2])
    for handle in handles:
        handle.remove()
    assert ran == [0, 1] and set(captured) == {0, 2}


@pytest.mark.parametrize("window", [20, 31, 40])
@torch.no_grad()
def test_a_session_longer_than_the_window_is_read_in_chunks(window: int) -> None:
    model = wrap()
    one = session(0, "I adopted a cat and it sleeps all day", "Lovely, what is it called?")
    ids, pieces = model.encoder.tokenize(one)
    assert len(ids) > 2 * window and len(ids) % window > 1
    model.lm.config.max_position_embeddings = window
    features = model.encoder.encode([one, session(1, "Hi")])[0]
    kept = [i for i in range(len(ids)) if i % window]
    assert features.tokens.tolist() == [ids[i] for i in kept]
    assert features.pieces.tolist() == [pieces[i] for i in kept]
    hidden = tiny_model("llama")(torch.tensor([ids[window : 2 * window]]), output_hidden_states=True).hidden_states
    second = features.states[0][window - 1 : 2 * (window - 1)]
    torch.testing.assert_close(second, hidden[model.fusion_layers[0]][0, 1:], **TOLERANCE)
    state = model.remember([one], model.init_state())
    assert state.semantic_mask.sum() <= len(kept) and len(state.nodes[0]) == 3


@torch.no_grad()
def test_a_last_chunk_of_one_token_does_not_change_the_types() -> None:
    model = wrap()
    ids, _ = model.encoder.tokenize(SESSIONS[0])
    model.lm.config.max_position_embeddings = len(ids) - 1
    features = model.encoder.encode(SESSIONS[:1])[0]
    assert features.tokens.dtype == features.pieces.dtype == torch.long
    assert features.tokens.tolist() == ids[1:-1]
    assert model.remember(SESSIONS[:1], model.init_state()).sessions == (1,)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_the_window_is_the_models_positions_and_nothing_longer_is_read(architecture: Architecture) -> None:
    encoder = wrap(architecture).encoder
    positions = min(tiny_model(architecture).config.max_position_embeddings, 4096)
    assert encoder.window == positions
    layer = encoder.key_layer
    assert encoder.states(torch.ones(1, positions, dtype=torch.long), [layer])[layer].shape[1] == positions
    with pytest.raises(ValueError, match=f"{positions + 1} tokens in one pass, but the window of this model is"):
        encoder.states(torch.ones(1, positions + 1, dtype=torch.long), [layer])


@pytest.mark.parametrize("name", ["n_positions", "max_seq_len"])
def test_positions_under_another_name_are_respected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    encoder = wrap().encoder
    named = SimpleNamespace(**{name: 24})
    monkeypatch.setattr(encoder, "lm", SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: named)))
    assert encoder.window == 24
    monkeypatch.setattr(
        encoder, "lm", SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: SimpleNamespace()))
    )
    assert encoder.window == 4096
