from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import mlmf.sweep as sweep_module
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.config.parse import parse_config
from mlmf.config.sweep import SweepConfig, with_settings
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.sweep import combinations, divide, run_sweep

ROOT = Path(__file__).parents[1]
COLOURS = ("red", "blue", "green", "white")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepConfig:
    """Two trials of one step each on four short conversations."""
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path / "cache"))
    lines = []
    for name, colour in zip("abcd", COLOURS, strict=True):
        turns = [{"id": f"{name}1", "speaker": "Ann", "text": f"My bicycle is {colour} and quite old by now."}]
        question = {"question": "What colour is the bicycle?", "answer": colour, "evidence": [f"{name}1"]}
        lines.append(json.dumps({"id": name, "sessions": [{"turns": turns}], "questions": [question]}))
    (tmp_path / "talks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    train = TrainConfig(
        task="jsonl", data_file=str(tmp_path / "talks.jsonl"), max_steps=1, per_device_train_batch_size=2, save_steps=0,
        model=MLMFConfig(base_model="tiny-random", lora=LoraSettings(r=2)),
    )  # fmt: skip
    space = {"model.alpha": [0.5, 0.9], "lambda_ret": [0.1]}
    return SweepConfig(space, "grid", train=train, output_dir=str(tmp_path / "sweep"))


def test_a_grid_is_every_combination_and_a_draw_repeats_none() -> None:
    space = {"lambda_ret": [0.0, 0.1, 0.2], "model.c_e": [8, 16]}
    assert len(combinations(SweepConfig(space, "grid"))) == 6
    drawn = combinations(SweepConfig(space, trials=4))
    assert len({json.dumps(one) for one in drawn}) == 4
    assert drawn == combinations(SweepConfig(space, trials=4)) != combinations(SweepConfig(space, trials=4, seed=1))
    assert len(combinations(SweepConfig(space, trials=50))) == 6
    assert combinations(SweepConfig()) == [{}]


def test_who_is_held_back_is_never_trained_on_and_always_the_same(config: SweepConfig) -> None:
    trained, validation = divide(config)
    assert sorted(trained + validation) == list("abcd") and len(validation) == 1
    assert divide(replace(config, space={}, trials=3)) == (trained, validation)
    assert len(divide(replace(config, validation_share=0.99))[0]) == 1


def test_locco_holds_back_training_users_only() -> None:
    trained, validation = divide(SweepConfig(train=TrainConfig()))
    tested = json.loads(f"[{','.join(_test_users())}]")
    assert len(validation) == 10 and len(trained) == 30
    assert not {*trained, *validation} & {str(user) for user in tested}


def _test_users() -> list[str]:
    lines = (ROOT / "mlmf" / "data" / "files" / "probes.test.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted({str(json.loads(line)["user"]) for line in lines})


@pytest.mark.slow
def test_a_sweep_finds_the_best_and_goes_on_where_it_was(
    config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = run_sweep(config)
    folder = Path(config.output_dir)
    assert [trial["error"] for trial in results["trials"]] == [None, None]
    assert results == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    _, validation = divide(config)
    assert results["validation_conversations"] == validation
    for trial in results["trials"]:
        made = json.loads((folder / trial["folder"] / "run/final/config.json").read_text(encoding="utf-8"))
        assert made["memory"]["alpha"] == trial["changed"]["model.alpha"]
        assert set(made["training"]["conversation_ids"]["jsonl"]) == set("abcd") - set(validation)
        lines = (folder / trial["folder"] / "eval/jsonl/mlmf/seed_0/samples.jsonl").read_text(encoding="utf-8")
        assert {json.loads(line)["conversation_id"] for line in lines.splitlines()} == set(validation)
    best = parse_config(TrainConfig, ["--config", str(folder / "best.yaml")], prog="t", description="")
    assert best.model.alpha == results["trials"][0]["changed"]["model.alpha"] and best.conversations is None
    assert (folder / "table.md").read_text(encoding="utf-8").count("\n") == 4

    ran: list[str] = []
    monkeypatch.setattr(sweep_module, "run_training", lambda train: ran.append(train.output_dir))
    assert run_sweep(config) == results
    assert ran == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No training and no questions: the base models of the trials that ran."""
    ran: list[str] = []

    def train(settings: TrainConfig) -> Path:
        ran.append(settings.model.base_model)
        if settings.model.base_model == "nowhere":
            raise UserError("no such folder")
        return Path(settings.output_dir)

    monkeypatch.setattr(sweep_module, "run_training", train)
    monkeypatch.setattr(sweep_module, "_validate", lambda *_: dict.fromkeys(sweep_module.FIGURES, 0.5))
    return ran


def test_other_data_and_failed_trials_are_tried_again(config: SweepConfig, quick: list[str]) -> None:
    two = replace(config, space={"model.base_model": ["tiny-random", "nowhere"]})
    assert [trial["error"] for trial in run_sweep(two)["trials"]] == [None, "no such folder"]
    run_sweep(two)
    assert quick == ["tiny-random", "nowhere", "nowhere"]
    file = Path(str(config.train.data_file))
    file.write_text(file.read_text(encoding="utf-8").replace("quite old", "almost new"), encoding="utf-8")
    run_sweep(two)
    assert quick[3:] == ["tiny-random", "nowhere"]
    with pytest.raises(UserError, match="every trial failed, the first with: no such folder"):
        run_sweep(replace(config, space={"model.base_model": ["nowhere"]}))


def test_settings_that_allow_each_other_are_changed_together(config: SweepConfig, quick: list[str]) -> None:
    space = {"swapped_share": [0.2, 0.5], "named_share": [0.5, 1.0], "model.lora.r": [2, 4], "model.alpha": [0.5]}
    trials = run_sweep(replace(config, space=space))["trials"]
    assert len(trials) == 8 == len(quick) and all(trial["error"] is None for trial in trials)
    changed = with_settings(config.train, {"swapped_share": 0.2, "named_share": 0.5, "model.lora.r": 4})
    assert (changed.swapped_share, changed.named_share, changed.model.lora.r, changed.max_steps) == (0.2, 0.5, 4, 1)
    with pytest.raises(UserError, match="set named_share too"):
        SweepConfig({"swapped_share": [0.2]})
    fixed = replace(config, train=replace(config.train, named_share=0.5, swapped_share=0.2))
    assert divide(fixed) == divide(config)


@pytest.mark.slow
def test_a_trial_that_fails_is_told_and_does_not_stop_the_rest(config: SweepConfig) -> None:
    broken = replace(config, space={"model.fusion_layers": [[1, 2], [70]]})
    trials = run_sweep(broken)["trials"]
    assert [trial["changed"]["model.fusion_layers"] for trial in trials] == [[1, 2], [70]]
    assert trials[0]["error"] is None and "layer 70 does not exist" in trials[1]["error"]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"model.alhpa": [0.5]}, "Did you mean"),
        ({"model": [1]}, "unknown setting in space 'model'"),
        ({"seed.x": [1]}, "unknown setting in space 'seed.x'"),
        ({"model.alpha": [0.5, 1.5]}, "alpha must be in"),
        ({"model.alpha": ["much"]}, "space: model.alpha: expected float, got 'much'"),
        ({"model.alpha": []}, "space.model.alpha is empty"),
    ],
)
def test_a_bad_space_is_refused_before_anything_runs(space: dict[str, list[object]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SweepConfig(space)


def test_a_checkpoint_keeps_its_memory_settings() -> None:
    with pytest.raises(UserError, match="keeps its own settings"):
        SweepConfig({"model.alpha": [0.5]}, train=TrainConfig(init_from="outputs/x"))


def test_nothing_to_hold_back_is_said(config: SweepConfig) -> None:
    one = with_settings(config, {"train.conversations": ["a"]})
    with pytest.raises(UserError, match="two conversations with questions"):
        run_sweep(one)


def test_the_wandb_file_starts_trials_with_settings_that_exist() -> None:
    file = yaml.safe_load((ROOT / "configs/train/sweep_wandb.yaml").read_text(encoding="utf-8"))
    arguments = file["command"][file["command"].index("--sweep") + 1 : -1]
    for name, values in file["parameters"].items():
        value = values.get("min", values.get("values", [None])[0])
        arguments = [*arguments, f"--{name}={value}"]
    config = parse_config(
        SweepConfig, ["--config", *[str(ROOT / arguments[0]), *arguments[1:]]], prog="t", description=""
    )
    assert config.space == {} and config.train.report_to == "wandb"
    assert file["metric"]["name"] in {f"eval/{name}" for name in sweep_module.FIGURES}


@pytest.mark.slow
def test_the_command(config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, str(ROOT / "train.py"), "--sweep", str(ROOT / "configs/train/sweep.yaml")]
    command += [
        "--trials",
        "1",
        "--output_dir",
        str(tmp_path / "out"),
        "--train.task",
        "jsonl",
        "--train.max_steps",
        "1",
    ]
    command += ["--train.data_file", str(config.train.data_file), "--train.model.base_model", "tiny-random"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| model.alpha |" in done.stdout and (tmp_path / "out" / "best.yaml").is_file()
