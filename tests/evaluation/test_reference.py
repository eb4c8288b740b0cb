from __future__ import annotations

import json
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlmf.config.reference import ReferenceConfig
from mlmf.data.jsonl import dump_jsonl
from mlmf.errors import UserError
from mlmf.evaluation.folder import read_answers
from mlmf.evaluation.reference import main, page
from mlmf.evaluation.reference_runs import GROUPS, LOCCO, LOCOMO, figures, read_group, reference_json
from mlmf.evaluation.run import run_evaluation
from mlmf.types import Conversation, Question, Session, Turn
from tests.evaluation.conftest import config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three systems asked after each of six periods, two conversations, with the tiny model."""
    folder = tmp_path_factory.mktemp("finished")
    conversations = []
    for name in ("anna", "ben"):
        sessions = tuple(
            Session(i, datetime(2023, 5, 1 + i), (Turn(f"S{i}:0", name, f"thing {i} is blue"),)) for i in range(6)
        )
        questions = [
            Question(
                name,
                i,
                f"What is thing {i}?",
                "blue",
                category=i + 1,
                evidence=(f"S{i}:0",),
                session=i,
                id=f"{name}#{i}",
            )
            for i in range(6)
        ]
        questions.append(
            Question(name, 6, "What is thing 9?", None, category=1, is_trap=True, session=0, id=f"{name}#6")
        )
        conversations.append(Conversation(name, sessions, tuple(questions), (name,)))
    dump_jsonl(conversations, folder / "talks.jsonl")
    settings: dict[str, Any] = {"system": ["no_memory", "recent_window", "full_context"], "retention": "balanced"}
    run_evaluation(config(folder / "talks.jsonl", folder, **settings))
    return folder / "out" / "jsonl"


@pytest.fixture
def named(finished: Path) -> dict[str, dict[str, str]]:
    runs = {"mlmf": f"{finished}/recent_window", "full_context": f"{finished}/full_context", "cogmem": "nowhere"}
    return {
        "locomo_zero_shot": runs,
        "locomo_in_domain": {"mlmf": "nowhere/else"},
        "locco": runs,
        "ablations": {"mlmf": f"{finished}/recent_window", "no memory": f"{finished}/no_memory"},
    }


def named_groups(**found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every group that the page has, empty but for those given."""
    return {group: found.get(group, {}) for group in GROUPS}


def test_the_command_writes_page_and_figures(
    named: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "errors.md").write_text("## Ten errors\n\n1. a colour of another thing", encoding="utf-8")
    settings = {**named, "errors": "errors.md", "plots": "plots", "output": "page/RESULTS.md"}
    (tmp_path / "runs.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml"])
    assert main() == 0
    text = (tmp_path / "page/RESULTS.md").read_text(encoding="utf-8")
    # no variant of the memory was asked here, so there is nothing to draw of its parts
    assert text.count("](../plots/") == 2 and sorted(p.name for p in tmp_path.glob("plots/*")) == [
        "growth.svg",
        "retention.svg",
    ]
    assert ">full_context<" in (tmp_path / "plots/retention.svg").read_text(encoding="utf-8")
    assert text.count("cogmem: not measured.") == 2 and "mlmf: not measured." in text and "| cogmem" not in text
    assert "when less has been said: " in text
    assert "A of full_context" in text and "| F1, multi-hop | 0.594 |" in text
    assert text.rstrip().endswith("1. a colour of another thing")
    answered = [line for line in text.splitlines() if line.startswith("Answered by ")]
    assert answered[0] == "Answered by tiny-random as it is, untrained: full_context, mlmf."
    assert len(answered) == 3  # one for each group that was measured
    tests = [line for line in text.splitlines() if line.startswith("| jsonl | raw |")]
    assert len(tests) == 3 and all("| mlmf | no memory |" in line for line in tests)
    assert "nan" not in text.lower().split() and "None" not in text

    found = json.loads((tmp_path / "results/reference.json").read_text(encoding="utf-8"))
    assert list(found)[:3] == ["locomo_zero_shot", "locomo_in_domain", "locco"]
    assert set(found["locomo_zero_shot"]) == set(LOCOMO) and set(found["locco"]) == set(LOCCO)
    assert found["locomo_in_domain"] == dict.fromkeys(LOCOMO) == found["cogmem"]["locomo_zero_shot"]
    assert found["full_context"]["locco"]["speedup"] == pytest.approx(1.0)
    assert found["mlmf"]["locomo_zero_shot"] == found["locomo_zero_shot"]


def test_figures_are_those_of_the_run(finished: Path) -> None:
    scored = json.loads((finished / "recent_window/results.json").read_text(encoding="utf-8"))
    (entry,) = read_group("locco", {"x": str(finished / "recent_window")}).values()
    assert entry is not None and entry["system"] == "x"
    found = figures(entry, LOCCO)
    assert found["f1_answerable"] == scored["keys"]["raw"]["scores"]["answerable_f1"]["mean"]
    assert found["r6"] == scored["keys"]["raw"]["retention"]["consistency"]["r6"]["value"]
    assert found["context_usage"] == scored["usage"]["history_share"]
    assert found["speedup"] == pytest.approx(1 / scored["ratios_to_full_context"]["seconds_mean"])


def test_runs_that_were_not_asked_alike_are_told_apart(finished: Path) -> None:
    group = read_group("locco", {"one": str(finished / "recent_window"), "other": str(finished / "full_context")})
    other = group["other"]
    assert other is not None
    for settings in other["settings"].values():
        settings["max_new_tokens"] = 99
    text = page(
        ReferenceConfig(locco={"one": "x", "other": "y"}),
        named_groups(locco=group),
    )
    assert "were not asked alike: max_new_tokens is" in text and "99 for other" in text


def test_a_page_may_hold_nothing_but_gaps() -> None:
    wanted = ReferenceConfig(locco={"mlmf": "nowhere"})
    groups = {name: read_group(name, getattr(wanted, name)) for name in GROUPS}
    text = page(wanted, groups)
    assert text.count("not measured") > 7
    assert set(reference_json(groups, "mlmf")["locco"].values()) == {None}


def test_speed_is_measured_beside_the_whole_conversation_on_a_part_of_it(finished: Path, tmp_path: Path) -> None:
    for name in ("recent_window", "full_context"):
        (tmp_path / name).mkdir()
        entry = json.loads((finished / name / "results.json").read_text(encoding="utf-8"))
        text = json.dumps({**entry, "is_limited": True})
        (tmp_path / name / "results.json").write_text(text, encoding="utf-8")
    folders = {"full_context": f"{tmp_path}/full_context", "mlmf": f"{tmp_path}/recent_window"}
    alone_group = read_group("locco", {"mlmf": str(finished / "recent_window")})
    groups = named_groups(locco=alone_group, speed=read_group("speed", folders))
    alone, timed = groups["locco"]["mlmf"], groups["speed"]["mlmf"]
    assert alone is not None and timed is not None
    alone["ratios_to_full_context"], timed["ratios_to_full_context"]["seconds_mean"] = None, 0.125
    alone["task"] = "locco"
    assert reference_json(groups, "mlmf")["locco"]["speedup"] is None, "what was timed is another benchmark"
    timed["task"] = "locco"
    assert reference_json(groups, "mlmf")["locco"]["speedup"] == 8.0
    text = page(ReferenceConfig(), groups)
    assert text.count("| full_context |") == 2, "costs and ratios, no scores"
    timed["ratios_to_full_context"] = None
    assert reference_json(groups, "mlmf")["locco"]["speedup"] is None


def test_a_folder_that_is_no_result_is_named(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"locco\.mlmf.*results\.json is missing"):
        read_group("locco", {"mlmf": str(finished)})
    with pytest.raises(UserError, match=r"locco\.mlmf.*not one system's results"):
        read_group("locco", {"mlmf": str(finished.parent)})
    for damaged, said in (
        (b"", "is not valid JSON"),
        (b"\xff\xfe{", "is not valid JSON"),
        (b"[]", "not one system's results"),
    ):
        (tmp_path / "results.json").write_bytes(damaged)
        with pytest.raises(UserError, match=rf"locco\.mlmf.*results\.json.*{said}"):
            read_group("locco", {"mlmf": str(tmp_path)})


def test_scores_that_do_not_belong_to_the_answers_are_named(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished / "recent_window", folder)
    whole = (folder / "scores.jsonl").read_text(encoding="utf-8")
    assert len(read_answers(folder, [0])) == whole.count("\n")
    (folder / "scores.jsonl").write_text(whole[:-9], encoding="utf-8")
    with pytest.raises(UserError, match=r"scores\.jsonl was cut off in line \d+; score it again"):
        read_answers(folder, [0])
    (folder / "scores.jsonl").write_text(whole, encoding="utf-8")
    samples = folder / "seed_0/samples.jsonl"
    samples.write_text("".join(samples.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), encoding="utf-8")
    with pytest.raises(UserError, match=r"not in samples\.jsonl: of question .*wait until evaluate\.py is done"):
        read_answers(folder, [0])


@pytest.mark.parametrize("keys", [{}, None, {"raw": {}}])
def test_results_without_scores_are_named(finished: Path, tmp_path: Path, keys: object) -> None:
    entry = json.loads((finished / "recent_window/results.json").read_text(encoding="utf-8"))
    for changed in (
        {**entry, "keys": keys},
        {**entry, "settings": {}},
        {k: v for k, v in entry.items() if k != "task"},
    ):
        (tmp_path / "results.json").write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(UserError, match=r"locco\.mlmf.*not one system's results"):
            read_group("locco", {"mlmf": str(tmp_path)})


def test_results_that_do_not_belong_on_the_page_are_refused(finished: Path, tmp_path: Path) -> None:
    entry = json.loads((finished / "recent_window/results.json").read_text(encoding="utf-8"))
    for changed, group, said in (
        ({"task": "locco"}, "locomo_zero_shot", "is about locco, and this group about locomo"),
        ({"is_limited": True}, "locco", r"is about 14 of 14 questions; run evaluate\.py without --limit"),
        ({"trained_on": {"ids": ["4"], "scored": ["4"]}}, "locomo_in_domain", r"trained on \(4\)"),
    ):
        (tmp_path / "results.json").write_text(json.dumps({**entry, **changed}), encoding="utf-8")
        with pytest.raises(UserError, match=said):
            read_group(group, {"mlmf": str(tmp_path)})


def test_figures_that_stand_there_do_not_give_way_to_gaps(
    named: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml"])
    Path("runs.yaml").write_text(yaml.safe_dump({**named, "kept": None}), encoding="utf-8")
    assert main() == 0
    assert not Path("results/runs").exists()
    before = Path("RESULTS.md").read_bytes()
    gone: dict[str, Any] = {group: dict.fromkeys(runs, "nowhere") for group, runs in named.items()} | {"kept": None}
    Path("runs.yaml").write_text(yaml.safe_dump(gone), encoding="utf-8")
    with pytest.raises(UserError, match=r"not there now: full_context \(locco: .*pass --overwrite true"):
        main()
    assert Path("RESULTS.md").read_bytes() == before
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml", "--overwrite", "true"])
    assert main() == 0 and Path("RESULTS.md").read_bytes() != before


def test_the_page_is_the_same_where_the_folders_of_the_runs_are_gone(
    named: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml"])
    written = ("RESULTS.md", "results/reference.json", "plots/retention.svg", "plots/growth.svg")
    before: list[bytes] = []
    for folders in (named, {group: dict.fromkeys(runs, "nowhere") for group, runs in named.items()}):
        Path("runs.yaml").write_text(yaml.safe_dump({**folders, "plots": "plots"}), encoding="utf-8")
        assert main() == 0
        before.append(b"".join(Path(name).read_bytes() for name in written))
    assert before[0] == before[1] and b"A of full_context" in before[1] and b"| mlmf | no memory |" in before[1]
    assert sorted(path.name for path in Path("results/runs/locco").iterdir()) == ["full_context.json", "mlmf.json"]

    # one run is measured anew, the others stay
    again = {**named, "locco": {**named["locco"], "full_context": "nowhere"}}
    Path("runs.yaml").write_text(yaml.safe_dump(again), encoding="utf-8")
    assert main() == 0
    assert Path("results/reference.json").read_bytes() in before[0]

    path = Path("results/runs/locco/full_context.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    no_controls = {name: {part: key[part] for part in key if part != "controls"} for name, key in kept["keys"].items()}
    for changed, said in (
        ({}, r"full_context\.json is not what was kept"),
        ({**kept, "keys": no_controls}, r"full_context\.json is not what was kept"),
        ({**kept, "is_limited": True}, r"locco\.full_context: .*full_context\.json is about 14 of 14 questions"),
        ({**kept, "trained_on": {"ids": ["4"], "scored": ["4"]}}, r"full_context\.json.* trained on \(4\)"),
    ):
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(UserError, match=said):
            main()


def test_tests_of_figures_that_were_measured_anew_leave_the_page(
    named: dict[str, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml"])
    Path("runs.yaml").write_text(yaml.safe_dump(named), encoding="utf-8")
    assert main() == 0
    assert "as they were kept" not in capsys.readouterr().out

    # the variant is asked again, and the answers of the full model are gone
    folder = tmp_path / "again"
    shutil.copytree(named["ablations"]["no memory"], folder)
    entry = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    entry["keys"]["raw"]["scores"]["answerable_f1"]["mean"] = 0.987
    (folder / "results.json").write_text(json.dumps(entry), encoding="utf-8")
    Path("runs.yaml").write_text(
        yaml.safe_dump({**named, "ablations": {"mlmf": "nowhere", "no memory": str(folder)}}), encoding="utf-8"
    )
    assert main() == 0
    text = Path("RESULTS.md").read_text(encoding="utf-8")
    assert "0.987" in text and "| mlmf | no memory |" not in text
    assert "Not tested, since answers that the figures above rest on are gone: no memory." in text
    assert "their folders are not there: ablations.mlmf" in capsys.readouterr().out

    Path("results/runs/ablations/tests.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"tests\.json is not what was kept of paired tests"):
        main()


def test_nothing_is_kept_of_a_page_that_is_refused(
    named: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference", "--config", "runs.yaml"])
    Path("runs.yaml").write_text(yaml.safe_dump(named), encoding="utf-8")
    assert main() == 0
    before = {path: path.read_bytes() for path in Path("results").rglob("*.json")}
    folder = tmp_path / "again"
    shutil.copytree(named["locco"]["mlmf"], folder)
    entry = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    entry["keys"]["raw"]["retention"] = None
    (folder / "results.json").write_text(json.dumps(entry), encoding="utf-8")
    Path("runs.yaml").write_text(yaml.safe_dump({**named, "locco": {"mlmf": str(folder)}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"not there now: .*full_context \(locco: "):
        main()
    assert {path: path.read_bytes() for path in Path("results").rglob("*.json")} == before


def test_settings_that_say_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["reference"])
    with pytest.raises(UserError, match="no run is named"):
        main()
    for label in ("tests", "../up", ""):
        with pytest.raises(UserError, match="cannot name a file"):
            ReferenceConfig(locco={label: "x"})
    with pytest.raises(UserError, match="label 'mlmf'"):
        ReferenceConfig(ablations={"full": "x"})
    with pytest.raises(UserError, match=r"errors nowhere\.md"):
        page(
            ReferenceConfig(locco={"a": "b"}, errors="nowhere.md"),
            named_groups(),
        )
