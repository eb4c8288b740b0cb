from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mlmf.data.turnbench import HOW_TO_GET, RULES_FILE, SETUPS_FILE, consistent_codes, load_setups
from mlmf.data.turnbench_rules import CODES, passing
from mlmf.errors import UserError
from tests.data.conftest import found_or_skip

SETUP = {"setup_id": "A1", "difficulty": "easy", "verifier_ids": [1, 2], "active_criteria": [0, 1], "answer": "123"}
RULES = {"1": ["strictly ascending", "strictly descending"], "2": ["sum=7", "sum=6"]}


def write(folder: Path, setup: object = SETUP, rules: object = RULES) -> tuple[Path, Path]:
    files = folder / "setups.json", folder / "rules.json"
    files[0].write_text(json.dumps({"setups": [setup]}), encoding="utf-8")
    files[1].write_text(json.dumps(rules), encoding="utf-8")
    return files


def test_every_code_is_there_once() -> None:
    assert len(set(CODES)) == 125 and all(set(code) <= {1, 2, 3, 4, 5} for code in CODES)


@pytest.mark.parametrize(
    ("criterion", "passes", "fails"),
    [
        ("BLUE < 3", "255", "355"),
        ("BLUE > YELLOW", "321", "331"),
        ("PURPLE odd", "241", "112"),
        ("sum even", "112", "111"),
        ("B+Y=6", "155", "254"),
        ("sum>6", "115", "114"),
        ("BLUE+PURPLE=4", "153", "152"),
        ("sum multiple of 4", "224", "225"),
        ("exactly 0 x 4", "123", "124"),
        ("exactly 2 x 3", "133", "333"),
        ("2 even numbers", "124", "224"),
        ("more even than odd", "124", "114"),
        ("more odd than even", "114", "124"),
        ("BLUE strictly smallest", "123", "113"),
        ("YELLOW largest or tied", "155", "125"),
        ("triple", "444", "445"),
        ("double", "445", "444"),
        ("no repetition", "145", "144"),
        ("no pair", "444", "443"),
        ("a pair", "343", "345"),
        ("strictly ascending", "135", "155"),
        ("strictly descending", "531", "513"),
        ("no order", "535", "531"),
        ("3 consecutive ascending", "345", "543"),
        ("2 consecutive ascending", "125", "123"),
        ("none", "321", "451"),
        ("run of 3", "321", "325"),
        ("run of 2", "545", "543"),
        ("no consecutive run up or down", "135", "145"),
    ],
)
def test_criterion(criterion: str, passes: str, fails: str) -> None:
    allowed = {"".join(map(str, code)) for code, ok in zip(CODES, passing(criterion), strict=True) if ok}
    assert passes in allowed and fails not in allowed


@pytest.mark.parametrize("criterion", ["GREEN < 3", "BLUE strange", "BLUE+GREEN=4", "", "exactly two x 1"])
def test_unknown_criterion_is_named(criterion: str) -> None:
    with pytest.raises(UserError, match="TurnBench criterion"):
        passing(criterion)


def test_reads_setups(tmp_path: Path) -> None:
    (setup,) = load_setups(*write(tmp_path))
    assert (setup.id, setup.difficulty, setup.answer) == ("A1", "easy", (1, 2, 3))
    assert [one.passes((1, 2, 3)) for one in setup.verifiers] == [True, True]
    assert [one.passes((1, 2, 4)) for one in setup.verifiers] == [True, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "132"}, "set-up A1: 1 codes pass every verifier"),
        ({"active_criteria": [0, 0]}, "set-up A1: 1 codes|the answer must be the only one"),
        ({"verifier_ids": [1, 9]}, "verifier 9 with criterion 1 is not in the file"),
        ({"active_criteria": [0, 2]}, "verifier 2 with criterion 2 is not in the file"),
        ({"active_criteria": [0, -1]}, "verifier 2 with criterion -1"),
        ({"active_criteria": [0]}, "lists of the same length"),
        ({"difficulty": "fiendish"}, r"setups\[0\].difficulty"),
        ({"answer": 123}, r"setups\[0\].answer"),
    ],
)
def test_bad_setup_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_setups(*write(tmp_path, SETUP | change))


@pytest.mark.parametrize("rules", [[], {"1": "BLUE < 3"}, {"one": ["BLUE < 3"]}, {}])
def test_bad_rules_are_refused(tmp_path: Path, rules: object) -> None:
    with pytest.raises(UserError, match=r"rules\.json"):
        load_setups(*write(tmp_path, rules=rules))


def test_missing_files_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMF_DATA", str(tmp_path))
    monkeypatch.setenv("MLMF_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"turnbench/classic45\.json not found.*pydoc mlmf\.data\.turnbench"):
        load_setups()


def test_the_45_answers_are_the_only_consistent_codes() -> None:
    setups = load_setups(found_or_skip(SETUPS_FILE, HOW_TO_GET), found_or_skip(RULES_FILE, HOW_TO_GET))
    assert Counter(setup.difficulty for setup in setups) == {"easy": 15, "medium": 15, "hard": 15}
    assert all(consistent_codes(setup.verifiers) == [setup.answer] for setup in setups)


def test_exclusive_cards_cover_every_code_once() -> None:
    cards = json.loads(found_or_skip(RULES_FILE, HOW_TO_GET).read_text(encoding="utf-8"))
    exclusive = [number for number in cards if int(number) in {*range(1, 14), *range(16, 26)}]
    for number in exclusive:
        counted = sum(passing(criterion).astype(int) for criterion in cards[number])
        assert set(counted) == {1}, number
