"""Finished runs as the reference page needs them: read, labelled, and boiled down to their headline figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlmf.errors import UserError
from mlmf.evaluation.results import SCHEMA_VERSION

Entry = dict[str, Any]
Figures = dict[str, float | None]
LOCOMO = ("official_overall", "f1_answerable", "abstention", "over_refusal", "context_usage", "speedup")
LOCCO = ("f1_answerable", "r6", "false_memory_rate", "over_refusal", "context_usage", "speedup")


def read_run(label: str, folder: str, group: str) -> Entry | None:
    """What ``evaluate.py`` scored for one task and system, its system renamed to ``label``; ``None`` where it did not run.

    Raises:
        UserError: the folder holds something else, results of another version, or of part of the questions only.
    """
    path = Path(folder) / "results.json"
    if not Path(folder).exists():
        return None
    if not path.is_file():
        raise UserError(f"{group}.{label}: {path} is missing; give DIR/TASK/SYSTEM of a finished evaluate.py")
    try:
        entry: Entry = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{group}.{label}: {path} is not valid JSON: {error}; score it again with evaluate.py"
        ) from error
    if not isinstance(entry, dict) or entry.get("schema_version") != SCHEMA_VERSION or "keys" not in entry:
        raise UserError(
            f"{group}.{label}: {path} is not one system's results of this version; give DIR/TASK/SYSTEM, and score it "
            "again with evaluate.py --score_only"
        )
    return {**entry, "system": label}


def read_group(group: str, folders: Mapping[str, str]) -> dict[str, Entry | None]:
    """The runs of one group by label, in the order given."""
    return {label: read_run(label, folder, group) for label, folder in folders.items()}


def figures(entry: Entry | None, names: tuple[str, ...]) -> Figures:
    """Headline figures under the published key: shares from 0 to 1, ``speedup`` as a multiple of full_context in that run."""
    if entry is None:
        return dict.fromkeys(names)
    key = entry["keys"]["raw"]
    scores, retention, ratios = key["scores"], key["retention"], entry["ratios_to_full_context"]
    share = None if ratios is None else ratios["seconds_mean"]
    every: Figures = {
        "official_overall": scores["overall_f1"]["mean"],
        "f1_answerable": scores["answerable_f1"]["mean"],
        "abstention": scores["abstention_on_traps"]["mean"],
        "false_memory_rate": scores["false_memory"]["mean"],
        "over_refusal": scores["over_refusal"]["mean"],
        "r6": None if retention is None else retention["consistency"]["r6"]["value"],
        "context_usage": entry["usage"]["history_share"],
        "speedup": 1 / share if share else None,
    }
    return {name: every[name] for name in names}


def reference_json(groups: Mapping[str, Mapping[str, Entry | None]], main: str) -> dict[str, Any]:
    """``{"locomo_zero_shot": ..., "locomo_in_domain": ..., "locco": ...}`` of ``main``, then each label with its groups."""
    names = {"locomo_zero_shot": LOCOMO, "locomo_in_domain": LOCOMO, "locco": LOCCO}
    headline: dict[str, Any] = {group: figures(groups[group].get(main), kinds) for group, kinds in names.items()}
    for group, kinds in names.items():
        for label, entry in groups[group].items():
            headline.setdefault(label, {})[group] = figures(entry, kinds)
    return headline
