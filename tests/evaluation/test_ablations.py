"""``--ablations table5``: variants from checkpoints or by training them, and what their table and figures compare."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mlmf.evaluation.asking as asking_module
from mlmf.config.evaluation import EvalConfig
from mlmf.config.model import MLMFConfig
from mlmf.config.training import TrainConfig
from mlmf.config.variants import TABLES, variant_systems
from mlmf.data.jsonl import dump_jsonl
from mlmf.errors import UserError
from mlmf.evaluation.ablations import check_variants, train_variants
from mlmf.evaluation.run import run_evaluation
from mlmf.model import MLMFModel
from mlmf.training.run import run_training
from mlmf.types import Answer, Conversation
from tests.evaluation.conftest import SpySystem, config, make_conversation

SYSTEMS = ["mlmf_full", "mlmf_no_semantic", "mlmf_no_episodic", "mlmf_no_retention", "mlmf_no_gating"]


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained checkpoint of each variant."""
    folder = tmp_path_factory.mktemp("variants")
    for name, switches in TABLES["table5"].items():
        model = MLMFConfig(base_model="tiny-random", c_s=8, node_tokens=8, **switches)
        MLMFModel.from_base("tiny-random", model).save_pretrained(folder / name)
    return folder


def described(folder: Path, **facts: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"training": facts}))


def test_every_variant_is_a_system_after_those_that_are_named() -> None:
    settings = EvalConfig(system=["no_memory", "mlmf"], ablations="table5", checkpoint="runs/{variant}_{seed}")
    assert settings.system_names == ["no_memory", *SYSTEMS] == ["no_memory", *variant_systems("table5")]
    found = [settings.parts(name, 3)[0][1].checkpoint for name in ("mlmf_no_gating", "no_memory")]
    assert found == ["runs/no_gating_3", "runs/full_3"]


def test_each_variant_answers_from_its_own_checkpoint(data_file: Path, tmp_path: Path, variants: Path) -> None:
    settings = {"system": "mlmf", "ablations": "table5", "checkpoint": str(variants / "{variant}"), "limit": 2}
    outcome = run_evaluation(config(data_file, tmp_path, **settings))
    assert [entry["system"] for entry in outcome.results] == SYSTEMS
    assert [entry["n"]["failed"] for entry in outcome.results] == [0] * 5
    assert len({entry["settings"]["0"]["checkpoint_sha256"] for entry in outcome.results}) == 5
    # what a switch removes has no share of the read
    gates = {entry["system"]: set(entry["usage"]["gates"]) for entry in outcome.results}
    assert gates["mlmf_full"] == {"working", "episodic", "semantic"}


def test_the_table_compares_each_variant_with_the_full_memory(
    data_file: Path, tmp_path: Path, variants: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"Question 0?": Answer("SECRETGOLD0"), "Question 3?": Answer("I don't know")}
    systems = {
        "mlmf_full": SpySystem(full),
        "mlmf_no_semantic": SpySystem({"Question 1?": Answer("a dog"), "Question 3?": Answer("a lure")}),
    }
    monkeypatch.setattr(asking_module, "build_system", lambda name, shared: systems.get(name, SpySystem(full)))
    settings = {"system": "mlmf", "ablations": "table5", "checkpoint": str(variants / "{variant}"), "seeds": [0, 1]}
    run_evaluation(config(data_file, tmp_path, **settings))
    found = json.loads((tmp_path / "out" / "results.json").read_text())["ablations"]
    assert [one["systems"] for one in found if one["measure"] == "answerable_f1"] == [
        ["mlmf_full", name] for name in SYSTEMS[1:]
    ]
    (semantic,) = [
        one for one in found if one["measure"] == "answerable_f1" and one["systems"][1] == "mlmf_no_semantic"
    ]
    # two of three questions right against none
    assert (semantic["n"], semantic["first"], semantic["difference"]) == (
        6,
        pytest.approx(2 / 3),
        pytest.approx(-2 / 3),
    )
    # corrected over the four variants alone: the three that answer as the full memory does have p = 1
    assert semantic["p_bootstrap_holm"] == pytest.approx(min(1.0, 4 * semantic["p_bootstrap"]))
    report = (tmp_path / "out" / "report.md").read_text()
    row = next(line for line in report.splitlines() if line.startswith("| no_semantic |"))
    assert "| -0.667 | -0.67..-0.67 |" in row and "| -1.000 | 6 |" in row
    assert (tmp_path / "out" / "plots" / "jsonl-raw-ablations.svg").is_file()


def test_a_checkpoint_that_is_another_variant_is_refused(data_file: Path, tmp_path: Path, variants: Path) -> None:
    shutil.copytree(variants, tmp_path / "mixed")
    shutil.rmtree(tmp_path / "mixed" / "no_gating")
    shutil.copytree(variants / "full", tmp_path / "mixed" / "no_gating")
    settings = {"system": "mlmf", "ablations": "table5", "checkpoint": str(tmp_path / "mixed" / "{variant}")}
    with pytest.raises(UserError, match=r"no_gating: gating is true, .* train it with --model\.gating false"):
        run_evaluation(config(data_file, tmp_path, **settings))


def test_variants_that_were_trained_differently_are_refused(tmp_path: Path, variants: Path) -> None:
    shutil.copytree(variants, tmp_path / "mixed")
    for path in (tmp_path / "mixed").iterdir():
        described(path, task="locco", total_steps=2 if path.name == "no_episodic" else 3, model=path.name)
    with pytest.raises(UserError, match=r"no_episodic: not trained as .*full was \(total_steps differs\)"):
        check_variants(EvalConfig(system="mlmf", ablations="table5", checkpoint=str(tmp_path / "mixed" / "{variant}")))


@pytest.fixture
def training_files(conversation: Conversation, tmp_path: Path) -> list[str]:
    """Settings of two short stages of training, about other conversations than those asked."""
    questions = [replace(one, conversation_id="carl", id=f"carl#{one.index}") for one in conversation.questions]
    dump_jsonl([make_conversation("carl", questions)], tmp_path / "training.jsonl")
    settings = (
        f"task: jsonl\ndata_file: {tmp_path / 'training.jsonl'}\nmax_steps: 1\nsave_steps: 0\n"
        "model: {base_model: tiny-random, recall_nodes: 2, c_s: 8, node_tokens: 8, lora: {r: 2}}\n"
    )
    for number in (0, 1):
        (tmp_path / f"stage_{number}.yaml").write_text(settings)
    return [str(tmp_path / f"stage_{number}.yaml") for number in (0, 1)]


def test_trainings_differ_in_one_switch_and_follow_each_other(training_files: list[str], tmp_path: Path) -> None:
    asked: list[TrainConfig] = []

    def train(wanted: TrainConfig) -> None:
        asked.append(wanted)
        (Path(wanted.output_dir) / "final").mkdir(parents=True)

    settings = EvalConfig(
        ablations="table5", ablation_training=training_files, seeds=[3, 4], output_dir=str(tmp_path / "out")
    )
    made = train_variants(settings, train)
    assert made.checkpoint == str(tmp_path / "out" / "training" / "{variant}" / "seed_{seed}" / "stage_1" / "final")
    assert [(one.seed, one.model.semantic, one.model.gating) for one in asked[:4]] == [(3, True, True)] * 2 + [
        (3, False, True)
    ] * 2
    assert (len(asked), asked[0].init_from) == (20, None)
    assert asked[1].init_from == str(Path(asked[0].output_dir) / "final")
    (tmp_path / "stage_0.yaml").write_text("init_from: somewhere\n")
    with pytest.raises(UserError, match="init_from is somewhere, and a checkpoint keeps the parts it has"):
        train_variants(settings, train)


def test_a_training_of_other_settings_is_not_taken_for_this_one(training_files: list[str], tmp_path: Path) -> None:
    settings = EvalConfig(ablations="table5", ablation_training=training_files[:1], output_dir=str(tmp_path / "out"))
    trained: list[str] = []

    def train(wanted: TrainConfig) -> None:
        trained.append(str(run_training(wanted)))

    only_full = {"table5": {"full": {}}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlmf.evaluation.ablations.TABLES", only_full)
        train_variants(settings, train)
        train_variants(settings, train)
        assert len(trained) == 1
        text = Path(training_files[0]).read_text().replace("max_steps: 1", "max_steps: 2")
        Path(training_files[0]).write_text(text)
        with pytest.raises(UserError, match=r"stage_0/config\.yaml: a training with other settings; remove "):
            train_variants(settings, train)


@pytest.mark.slow
def test_from_files_of_training_settings_to_the_table(
    data_file: Path, training_files: list[str], tmp_path: Path
) -> None:
    settings = {"system": "no_memory", "ablations": "table5", "ablation_training": training_files, "seeds": [0, 1]}
    made = train_variants(config(data_file, tmp_path, **settings), run_training)
    outcome = run_evaluation(made)
    assert [entry["system"] for entry in outcome.results] == ["no_memory", *SYSTEMS]
    for entry in outcome.results[1:]:
        assert (entry["seeds"], entry["n"]["failed"], entry["trained_on"]["ids"]) == ([0, 1], 0, ["carl"])
    found = json.loads((tmp_path / "out" / "results.json").read_text())["ablations"]
    assert len([one for one in found if one["measure"] == "answerable_f1"]) == 4
    assert all(one["p_seeds"] is not None or one["difference"] == 0 for one in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"ablations": "table5", "checkpoint": "x"},
            r"ablations is table5, but checkpoint x names no \{variant\}; .*or --ablation_training FILES",
        ),
        ({"ablations": "table5"}, r"checkpoint null names no \{variant\}"),
        ({"checkpoint": "x/{variant}"}, r"names a \{variant\}; say which with --ablations"),
        ({"ablation_training": ["x"]}, "give --ablations, and no --checkpoint"),
        ({"ablations": "table5", "ablation_training": []}, r"ablations is table5|ablation_training is empty"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EvalConfig(**settings)
