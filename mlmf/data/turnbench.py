"""Set-ups of TurnBench's classic mode: which verifiers are on the table, what each secretly checks, the hidden code.

TurnBench-MS (arXiv 2506.01341) publishes its 45 set-ups without a licence, so none is shipped. Two files are read from
``turnbench/`` in ``MLMF_DATA``: ``classic45.json``, ``{"setups": [{"setup_id", "difficulty", "verifier_ids",
"active_criteria", "answer"}, ...]}``, and ``verifier_rules.json``, ``{verifier id: [criterion, ...]}`` in the sentences
of :mod:`mlmf.data.turnbench_rules`. Every set-up is proved when it is read: its active criteria leave one code, its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from mlmf.data.reading import Record, checked, parse_json, read_text, unique
from mlmf.data.turnbench_rules import CODES, Code, passing
from mlmf.errors import UserError
from mlmf.paths import find_data

SETUPS_FILE, RULES_FILE = "turnbench/classic45.json", "turnbench/verifier_rules.json"
HOW_TO_GET = (
    "write it in the form that `python -m pydoc mlmf.data.turnbench` describes, from the benchmark's own set-ups"
)
Difficulty = Literal["easy", "medium", "hard"]


@dataclass(frozen=True, slots=True)
class Verifier:
    """A card with several criteria, one of which it checks; a player knows the criteria and not which one."""

    criteria: tuple[str, ...]
    active: int
    """Which of them it checks, from 0."""

    def passes(self, code: Code) -> bool:
        """What it says of a code."""
        return bool(passing(self.criteria[self.active])[CODES.index(code)])


@dataclass(frozen=True, slots=True)
class Setup:
    """One game: the only code that passes every verifier is to be found."""

    id: str
    difficulty: Difficulty
    verifiers: tuple[Verifier, ...]
    answer: Code


class _Setup(Record):
    setup_id: str
    difficulty: Difficulty
    verifier_ids: list[int]
    active_criteria: list[int]
    answer: str


def consistent_codes(verifiers: tuple[Verifier, ...]) -> list[Code]:
    """The codes that pass all of them."""
    everywhere = np.logical_and.reduce([passing(one.criteria[one.active]) for one in verifiers])
    return [CODES[index] for index in np.flatnonzero(everywhere)]


def load_setups(setups: Path | None = None, rules: Path | None = None) -> list[Setup]:
    """Read and prove the set-ups.

    Args:
        setups: in place of ``classic45.json`` of the data folder.
        rules: in place of ``verifier_rules.json`` of the data folder.

    Raises:
        UserError: a file is missing or broken, or a set-up has another solution than its answer; names file and set-up.
    """
    setups = setups or find_data(SETUPS_FILE, HOW_TO_GET)
    rules = rules or find_data(RULES_FILE, HOW_TO_GET)
    cards = _cards(rules)
    content = parse_json(read_text(setups), setups.name)
    listed = content.get("setups") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UserError(f'{setups.name}: expected {{"setups": [...]}} with at least one set-up in it')
    records = [checked(_Setup, one, setups.name, f"setups[{i}]") for i, one in enumerate(listed)]
    unique(((one.setup_id, f"{setups.name}: setups[{i}]") for i, one in enumerate(records)), "set-up id")
    return [_proved(record, cards, f"{setups.name}: set-up {record.setup_id}") for record in records]


def _cards(rules: Path) -> dict[int, tuple[str, ...]]:
    content = parse_json(read_text(rules), rules.name)
    cards = {}
    for name, criteria in content.items() if isinstance(content, dict) else ():
        if not name.isdigit() or not isinstance(criteria, list) or not all(isinstance(one, str) for one in criteria):
            raise UserError(f"{rules.name}: verifier {name!r}: expected a number and a list of criteria")
        cards[int(name)] = tuple(criteria)
    if not cards:
        raise UserError(f"{rules.name}: expected a JSON object from verifier numbers to lists of criteria")
    return cards


def _proved(record: _Setup, cards: dict[int, tuple[str, ...]], where: str) -> Setup:
    if not record.verifier_ids or len(record.verifier_ids) != len(record.active_criteria):
        raise UserError(f"{where}: verifier_ids and active_criteria must be lists of the same length, at least one")
    verifiers = []
    for number, active in zip(record.verifier_ids, record.active_criteria, strict=True):
        if active not in range(len(cards.get(number, ()))):
            raise UserError(f"{where}: verifier {number} with criterion {active} is not in the file of verifiers")
        verifiers.append(Verifier(cards[number], active))
    codes = consistent_codes(tuple(verifiers))
    if ["".join(map(str, code)) for code in codes] != [record.answer]:
        raise UserError(f"{where}: {len(codes)} codes pass every verifier, and the answer must be the only one")
    return Setup(record.setup_id, record.difficulty, tuple(verifiers), codes[0])
