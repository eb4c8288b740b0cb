"""What the reference page says of a run, kept in the repository, so that one run is measured anew without all the others.

The answers of a run lie in its own folder and are large; LoCoMo's may not be published at all. What is kept are figures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlmf.errors import UserError
from mlmf.evaluation.reference_runs import Entry, belonging, is_scored
from mlmf.evaluation.results import write_json

TESTS = "tests"
"""Name of the file of paired tests, which no label has."""
_CATEGORY = ("category", "name", "n", "f1", "is_trap")
_EVIDENCE = ("n", "turns", "recall")
_RETENTION = ("consistency", "by_period")


def keep_run(folder: Path, entry: Entry) -> None:
    """Write what the page reads of a run as ``<label>.json``: no answers, and no figures of single conversations."""
    keys = {
        name: {
            **{part: value for part, value in key.items() if part != "over_seeds"},
            "scores": _figures(key["scores"]),
            "controls": {control: _figures(scores) for control, scores in key["controls"].items()},
            "retention": key["retention"] and {part: key["retention"][part] for part in _RETENTION},
        }
        for name, key in entry["keys"].items()
    }
    write_json(folder / f"{entry['system']}.json", {**entry, "keys": keys})


def _figures(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Scores without what no table of the page shows."""
    return {
        **scores,
        "categories": [{part: one[part] for part in _CATEGORY} for one in scores["categories"]],
        "evidence": {part: scores["evidence"][part] for part in _EVIDENCE},
    }


def kept_run(folder: Path, group: str, label: str) -> Entry | None:
    """What :func:`keep_run` wrote of the run of this label; ``None`` where nothing was.

    Raises:
        UserError: the file is not that, or of a run that does not belong in the group.
    """
    path = folder / f"{label}.json"
    if not path.is_file():
        return None
    entry: Entry = _read(path)
    if not is_scored(entry) or not all(
        {"scores", "controls", "retention"} <= key.keys() for key in entry["keys"].values()
    ):
        raise UserError(f"{path} is not what was kept of a run by this version; delete it and ask that run again")
    return belonging(entry, group, label, str(path))


def keep_tests(folder: Path, pairs: Sequence[Mapping[str, Any]], labels: Iterable[str]) -> None:
    """Write the paired tests of a group's runs, which need their answers, and which figures of the runs they belong to."""
    write_json(
        folder / f"{TESTS}.json", {"runs": {label: _digest(folder, label) for label in labels}, "pairs": list(pairs)}
    )


def kept_tests(folder: Path, labels: Iterable[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What :func:`keep_tests` wrote about these runs, as far as their figures are still those that were tested.

    Returns:
        The pairs; and the labels whose tests are not there, or of other figures.

    Raises:
        UserError: the file is not that.
    """
    path = folder / f"{TESTS}.json"
    known = _read(path) if path.is_file() else {"runs": {}, "pairs": []}
    try:
        same = {label for label in labels if known["runs"].get(label) == _digest(folder, label)}
        pairs = [pair for pair in known["pairs"] if same.issuperset(pair["systems"])]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not what was kept of paired tests by this version; delete it") from error
    return pairs, [label for label in labels if label not in same]


def _digest(folder: Path, label: str) -> str | None:
    path = folder / f"{label}.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid JSON: {error}; take it from the repository again") from error
