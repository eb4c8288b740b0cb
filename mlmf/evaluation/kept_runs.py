"""What the reference page says of a run, kept in the repository, so that one run is measured anew without all the others.

The answers of a run lie in its own folder and are large; LoCoMo's may not be published at all. What is kept are figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlmf.errors import UserError
from mlmf.evaluation.reference_runs import Entry, is_scored
from mlmf.evaluation.results import write_json

TESTS = "tests.json"
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


def kept_run(folder: Path, label: str) -> Entry | None:
    """What :func:`keep_run` wrote of the run of this label; ``None`` where nothing was.

    Raises:
        UserError: the file is not that.
    """
    path = folder / f"{label}.json"
    if not path.is_file():
        return None
    entry: Entry = _read(path)
    if not is_scored(entry):
        raise UserError(f"{path} is not what was kept of a run by this version; delete it and ask that run again")
    return entry


def keep_tests(folder: Path, pairs: Sequence[Mapping[str, Any]]) -> None:
    """Write the paired tests of a group's runs, which need their answers."""
    write_json(folder / TESTS, list(pairs))


def kept_tests(folder: Path) -> list[dict[str, Any]]:
    """What :func:`keep_tests` wrote; nothing where it did not."""
    path = folder / TESTS
    found: list[dict[str, Any]] = _read(path) if path.is_file() else []
    return found


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid JSON: {error}; take it from the repository again") from error
