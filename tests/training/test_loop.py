"""Contract 7: a resumed training is the one that was never interrupted. And what the loop writes and refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.training.data import TrainingData
from mlmf.training.loop import Trainer
from mlmf.types import Conversation, Query

MakeConfig, MakeModel = Callable[..., TrainConfig], Callable[..., MLMFModel]


@pytest.fixture
def trainer(
    make_config: MakeConfig, make_model: MakeModel, conversations: Sequence[Conversation]
) -> Callable[..., Trainer]:
    """``trainer(**settings)``: a trainer of a fresh model; ``model`` holds settings of the memory."""

    def make(*, model: dict[str, Any] | None = None, **settings: object) -> Trainer:
        return Trainer(make_config(**settings), make_model(**(model or {})), read(conversations), "task: jsonl\n")

    return make


def read(conversations: Sequence[Conversation]) -> TrainingData:
    return TrainingData(tuple(conversations), {"jsonl": [conversation.id for conversation in conversations]})


def metrics(folder: str | Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def losses(folder: str | Path) -> list[tuple[float, float, float]]:
    return [(line["step"], line["loss/gen"], line["loss/ret"]) for line in metrics(folder)]


def weights(model: MLMFModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("shown_share", [0.0, 0.7])
def test_six_steps_are_three_and_three(trainer: Callable[..., Trainer], tmp_path: Path, shown_share: float) -> None:
    shown = {"shown_share": shown_share, "shown_tokens": 40}
    whole = trainer(output_dir=str(tmp_path / "whole"), save_steps=3, **shown)
    whole.train()
    assert [step for step, _, _ in losses(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6]

    first = trainer(output_dir=str(tmp_path / "parts"), save_steps=3, **shown)
    step = first.step

    def stopped(number: int) -> Any:
        if number == 5:  # killed two steps after the checkpoint
            raise RuntimeError("power cut")
        return step(number)

    first.step = stopped  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="power cut"):
        first.train()
    assert [step for step, _, _ in losses(tmp_path / "parts")] == [1, 2, 3, 4, 5]

    second = trainer(output_dir=str(tmp_path / "parts"), save_steps=3, resume_from_checkpoint="latest", **shown)
    final = second.train()
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")  # no step twice, none lost, the same numbers
    expected = weights(whole.model)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(second.model).items())
    assert final == tmp_path / "parts" / "final" and (final / "config.json").is_file()


def test_lora_dropout_resumes_too(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    from mlmf.config.model import LoraSettings

    dropped = {"lora": LoraSettings(r=4, lora_dropout=0.3)}
    whole = trainer(output_dir=str(tmp_path / "whole"), max_steps=4, save_steps=2, model=dropped)
    whole.train()
    again = trainer(output_dir=str(tmp_path / "again"), max_steps=4, model=dropped,
                    resume_from_checkpoint=str(tmp_path / "whole" / "checkpoints" / "step_000002"))  # fmt: skip
    again.train()
    assert losses(tmp_path / "again") == losses(tmp_path / "whole")[2:]


def test_ctrl_c_saves_the_step_it_interrupts(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    whole = trainer(output_dir=str(tmp_path / "whole"), max_steps=4)
    whole.train()
    stopped = trainer(output_dir=str(tmp_path / "run"), max_steps=4)
    step = stopped.step

    def interrupt(number: int) -> Any:
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return step(number)

    stopped.step = interrupt  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    assert signal.getsignal(signal.SIGINT) is before
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_000002"]
    assert not (tmp_path / "run" / "final").exists()
    trainer(output_dir=str(tmp_path / "run"), max_steps=4, resume_from_checkpoint="latest").train()
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_loss_falls_when_ten_examples_are_learned_by_heart(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    made = trainer(max_steps=30, per_device_train_batch_size=10, learning_rate=1e-2, distractor_sessions=1)
    made.train()
    curve = [loss for _, loss, _ in losses(tmp_path / "run")]
    assert curve[0] > 4 and sum(curve[-3:]) / 3 < 0.5 * curve[0]
    assert metrics(tmp_path / "run")[-1]["gates/opening"] > 0


def test_what_a_run_writes(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    made = trainer(max_steps=4, logging_steps=3, save_steps=2, objectives=["answer", "reply"])
    made.train()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoints", "config.yaml", "environment.json", "final", "metrics.jsonl",
    ]  # fmt: skip
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [3, 4]
    expected = {"loss/gen", "loss/ret", "optimiser/learning_rate", "gates/semantic", "perf/tokens_per_s"}
    assert all(expected <= line.keys() for line in lines)
    assert {name.partition("/")[0] for name in lines[0]} == {"step", "loss", "gates", "nodes", "optimiser", "perf"}
    assert lines[0]["gates/beta"] == pytest.approx(made.model.config.beta, rel=0.2) and lines[0]["nodes/count"] > 1
    assert all(line["loss/evi"] > 0 and 0 <= line["nodes/found"] <= 1 for line in lines)
    assert lines[0]["gates/working"] + lines[0]["gates/episodic"] + lines[0]["gates/semantic"] == pytest.approx(
        1, abs=1e-4
    )
    panels = json.loads((Path(__file__).parents[2] / "docs" / "wandb_panels.json").read_text())
    shown = {name for section in panels for plot in panels[section] for name in plot["y"]}
    assert {name.partition("/")[0] for name in shown} == set(panels)
    assert {name for name in shown if not name.startswith("eval/")} == lines[0].keys() - {"step"}
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["objectives"] == ["answer", "reply"] and environment["examples"] == 18
    assert {"mlmf", "torch", "transformers"} <= environment["packages"].keys()


def test_the_final_model_opens_and_answers_as_trained(
    trainer: Callable[..., Trainer], make_model: MakeModel, conversations: Sequence[Conversation], tmp_path: Path
) -> None:
    from mlmf import checkpoint

    made = trainer(max_steps=2)
    made.train()
    loaded = make_model()
    checkpoint.load_weights(loaded, tmp_path / "run" / "final")

    @torch.no_grad()
    def logits(model: MLMFModel) -> torch.Tensor:
        state: MemoryState = model.init_state()
        for session in conversations[0].sessions:
            state = model.remember([session], state)
        ids = torch.tensor([model.tokenizer("Question: What colour is thing 1?\nAnswer:")["input_ids"]])
        assert model.answer_all([Query("What colour?")], state, max_new_tokens=2)[0].recalled
        return model(ids, state=state).logits

    loaded.lm.set_attn_implementation("eager")  # as in training on a CPU
    assert torch.equal(logits(loaded), logits(made.model))


def test_a_folder_that_is_not_empty_is_refused(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        trainer().train()
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_latest_without_a_checkpoint_starts_anew(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer(max_steps=1, resume_from_checkpoint="latest").train()
    assert (tmp_path / "run" / "final").is_dir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed = 0, now it is 1"),
        ({"max_steps": 5}, "max_steps = 2, now it is 5"),
        ({"objectives": ["reply"]}, "objectives"),
        ({"max_target_tokens": 20}, "max_target_tokens"),
        ({"model": {"c_e": 8}}, "."),
        ({"model": {"fusion_layers": [1]}}, "."),
    ],
)
def test_resuming_with_other_settings_is_refused(
    trainer: Callable[..., Trainer], change: dict[str, Any], message: str
) -> None:
    trainer(max_steps=2, save_steps=1).train()
    with pytest.raises(UserError, match=message):
        trainer(**{"max_steps": 2, "resume_from_checkpoint": "latest", **change}).train()


def test_a_lost_cache_does_not_stop_a_resume(
    trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer(max_steps=2, save_steps=1).train()
    made = trainer(max_steps=2, resume_from_checkpoint="latest")
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path / "elsewhere"))
    fresh = Trainer(made.config, made.model, read(made.batches.collator.conversations), "")
    fresh.train()
    assert [step for step, _, _ in losses(tmp_path / "run")] == [1, 2]


def test_accumulation_takes_the_same_examples_and_the_same_step(trainer: Callable[..., Trainer]) -> None:
    quick = {"distractor_sessions": 0, "lambda_ret": 0.0}
    whole = trainer(per_device_train_batch_size=4, **quick)
    parts = trainer(per_device_train_batch_size=1, gradient_accumulation_steps=4, **quick)
    assert whole.batches.total == parts.batches.total and whole.batches.per_epoch == parts.batches.per_epoch == 3
    for step in range(3):  # the last step of the epoch has two examples left
        whole.step(step)
        parts.step(step)
        expected = weights(whole.model)
        for name, tensor in weights(parts.model).items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=2e-4, msg=f"step {step}: {name}")


def test_a_loss_that_is_not_finite_stops_the_run(
    trainer: Callable[..., Trainer], conversations: Sequence[Conversation]
) -> None:
    made = trainer()
    with torch.no_grad():
        made.model.memory.fusions[0].g.fill_(float("nan"))
    with pytest.raises(UserError, match="the loss is nan at step 1"):
        made.step(0)


def test_nothing_to_train_on(
    make_config: MakeConfig, make_model: MakeModel, conversations: Sequence[Conversation]
) -> None:
    silent = [replace(conversation, questions=()) for conversation in conversations]
    with pytest.raises(UserError, match="nothing to train on"):
        Trainer(make_config(), make_model(), read(silent), "")


def test_gradient_checkpointing_changes_no_loss(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer(output_dir=str(tmp_path / "kept"), max_steps=3).train()
    again = trainer(output_dir=str(tmp_path / "again"), max_steps=3, gradient_checkpointing=True)
    assert again.model.lm.is_gradient_checkpointing
    again.train()
    for ours, expected in zip(losses(tmp_path / "again"), losses(tmp_path / "kept"), strict=True):
        assert ours == pytest.approx(expected, rel=1e-5)
