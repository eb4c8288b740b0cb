from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.training.optimiser import MasterAdamW, parameter_groups
from mlmf.training.run_folder import RunFolder

RATES = {"adapter": 1e-3, "copied": 1e-3, "fresh": 1e-3, "find": 1e-3, "mixing": 1e-3, "gate": 1e-3}
FACTS = {"task": "jsonl", "seed": 0}


def test_a_folder_with_anything_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.prepare(resume=False, overwrite=False)
    folder.prepare(resume=False, overwrite=False)  # empty is fine
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(
        UserError, match=r"output_dir .*run is not empty.*resume_from_checkpoint.*overwrite_output_dir"
    ):
        folder.prepare(resume=False, overwrite=False)
    assert (folder.path / "notes.txt").read_text() == "mine"
    folder.prepare(resume=True, overwrite=False)
    assert (folder.path / "notes.txt").exists()
    for name in ("metrics.jsonl", "checkpoints", "final"):
        (folder.path / name).mkdir()
    folder.prepare(resume=False, overwrite=True)
    # what a run left is removed, what somebody else put there is not
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(UserError, match="is not a folder"):
        RunFolder(tmp_path / "run").prepare(resume=False, overwrite=True)


@pytest.fixture
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    return make_model()


def test_old_checkpoints_make_room_and_the_latest_is_found(model: MLMFModel, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.find("latest") is None
    optimiser = MasterAdamW(parameter_groups(model, RATES, 0.0))
    (folder.checkpoints / ".step_000004.left_by_a_killed_run").mkdir(parents=True)
    for step in (5, 10, 100):
        folder.save(model, optimiser, step, FACTS, limit=2)
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["step_000010", "step_000100"]
    latest = folder.find("latest")
    assert latest == folder.checkpoints / "step_000100"
    (latest / "trainer_state.json").unlink()  # half a checkpoint is none
    assert folder.find("latest") == folder.checkpoints / "step_000010"
    with pytest.raises(UserError, match=r"trainer_state\.json is missing"):
        folder.find(str(latest))


def test_a_failed_save_leaves_the_one_before(
    model: MLMFModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    optimiser = MasterAdamW(parameter_groups(model, RATES, 0.0))
    kept = folder.save(model, optimiser, 5, FACTS, limit=1)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("mlmf.training.run_folder.save_file", full)
    with pytest.raises(OSError, match="No space"):
        folder.save(model, optimiser, 6, FACTS, limit=1)
    monkeypatch.undo()
    assert folder.find("latest") == kept
    assert folder.load(kept, model, optimiser, FACTS) == 5


def test_load_brings_back_weights_moments_and_random_state(
    model: MLMFModel, make_model: Callable[..., MLMFModel], tmp_path: Path
) -> None:
    optimiser = MasterAdamW(parameter_groups(model, RATES, 0.0))
    model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss.backward()
    optimiser.step()
    saved = RunFolder(tmp_path).save(model, optimiser, 3, FACTS, limit=1)
    expected = torch.rand(3)
    fresh = make_model()
    again = MasterAdamW(parameter_groups(fresh, RATES, 0.0))
    assert RunFolder(tmp_path).load(saved, fresh, again, FACTS) == 3
    assert torch.equal(torch.rand(3), expected)
    for (name, a), (_, b) in zip(model.named_parameters(), fresh.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    kept, back = optimiser.tensors(), again.tensors()
    assert kept.keys() == back.keys() and any(key.endswith("exp_avg") for key in kept)
    assert all(torch.equal(kept[key], back[key]) for key in kept)


def test_other_facts_are_named(model: MLMFModel, tmp_path: Path) -> None:
    optimiser = MasterAdamW(parameter_groups(model, RATES, 0.0))
    saved = RunFolder(tmp_path).save(model, optimiser, 3, FACTS, limit=1)
    with pytest.raises(UserError, match="seed = 0, now it is 1"):
        RunFolder(tmp_path).load(saved, model, optimiser, {**FACTS, "seed": 1})


def test_the_log_forgets_what_will_be_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.truncate_log(3)  # no log yet
    lines = [json.dumps({"step": step, "loss/gen": 1.0}) for step in (2, 4, 6)]
    # a killed process may leave half a line
    folder.metrics.write_text("\n".join(lines) + '\n{"step": 8, "tra')
    folder.truncate_log(4)
    assert folder.metrics.read_text() == "\n".join(lines[:2]) + "\n"
