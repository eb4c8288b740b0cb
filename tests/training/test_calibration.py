from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from mlmf.memory.features import session_pieces
from mlmf.model import MLMFModel
from mlmf.training.calibration import calibrate
from mlmf.types import Conversation, Session

MakeModel = Callable[..., MLMFModel]


@pytest.fixture
def sessions(conversations: Sequence[Conversation]) -> list[Session]:
    return [session for conversation in conversations for session in conversation.sessions]


def buffers(model: MLMFModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.memory.named_buffers()}


def test_statistics_are_those_of_sessions_spread_over_the_data(
    make_model: MakeModel, sessions: list[Session], tmp_path: Path
) -> None:
    model = make_model(code_dim=16)
    read = model.encoder.encode([sessions[i] for i in (0, 3, 6)])
    calibrate(model, sessions, tmp_path, count=3)
    states = torch.cat([one.states.transpose(0, 1) for one in read]).flatten(1)
    keys = torch.cat([one.keys for one in read])
    torch.testing.assert_close(model.memory.codec.mean, states.mean(0))
    torch.testing.assert_close(model.memory.key_projection.mean, keys.mean(0))
    codes = torch.cat([one.codes for one in model.features([sessions[i] for i in (0, 3, 6)])])
    torch.testing.assert_close(codes.std(0), torch.ones(16), rtol=0.02, atol=0.02)


def test_the_words_of_all_sessions_are_counted_by_turn_and_by_session(
    make_model: MakeModel, sessions: list[Session], tmp_path: Path
) -> None:
    model = make_model(code_dim=16)
    calibrate(model, sessions, tmp_path, count=3)
    scorer = model.memory.scorer
    pieces = [session_pieces(session) for session in sessions]
    assert int(scorer.of_turns.counted) == sum(map(len, pieces)) and int(scorer.of_sessions.counted) == len(sessions)
    for token in range(0, len(model.tokenizer), 5):
        held = [
            [token in model.tokenizer(one, add_special_tokens=False)["input_ids"] for one in row] for row in pieces
        ]
        assert int(scorer.of_turns.held[token]) == sum(map(sum, held))
        assert int(scorer.of_sessions.held[token]) == sum(map(any, held))


def test_the_second_time_nothing_is_read(
    make_model: MakeModel, sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_model(code_dim=16), make_model(code_dim=16)
    calibrate(first, sessions, tmp_path)
    assert first.fingerprint != second.fingerprint

    def read(_: Sequence[Session]) -> None:
        raise AssertionError("the sessions are read again")

    monkeypatch.setattr(second.encoder, "encode", read)
    calibrate(second, sessions, tmp_path)
    assert all(torch.equal(tensor, buffers(second)[name]) for name, tensor in buffers(first).items())
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("settings", [{"code_dim": 8}, {"key_layer": 2}, {"fusion_layers": [1]}, {"seed": 1}])
def test_other_settings_or_data_are_calibrated_anew(
    make_model: MakeModel, sessions: list[Session], tmp_path: Path, settings: dict[str, object]
) -> None:
    calibrate(make_model(code_dim=16), sessions, tmp_path)
    calibrate(make_model(**{"code_dim": 16, **settings}), sessions, tmp_path)
    calibrate(make_model(code_dim=16), sessions[1:], tmp_path)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3


def test_a_damaged_file_is_computed_again(make_model: MakeModel, sessions: list[Session], tmp_path: Path) -> None:
    calibrate(make_model(code_dim=16), sessions, tmp_path)
    (file,) = tmp_path.rglob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(b"half a fi")
    calibrate(make_model(code_dim=16), sessions, tmp_path)
    assert file.read_bytes() == whole
