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
READ = frozenset(
    ["system", "task", "n", "usage", "seeds", "trained_on", "is_limited", "ratios_to_full_context", "schema_version"]
)
"""What is read of a results file beside its keys and settings."""
BENCHMARKS = {"locomo_zero_shot": "locomo", "locomo_in_domain": "locomo", "locco": "locco"}
"""Whose questions the headline figures of a group are about; data of one's own may stand in their place."""
GROUPS = ("locomo_zero_shot", "locomo_in_domain", "locco", "training", "ablations", "speed")
IN_DOMAIN, SPEED = "locomo_in_domain", "speed"
"""The groups that may hold part of the questions: a fold alone, and what costs are measured on side by side."""


def read_run(folder: str, where: str) -> Entry | None:
    """What ``evaluate.py`` scored for one task and system; ``None`` where it did not run.

    Args:
        folder: ``DIR/TASK/SYSTEM``.
        where: it is named, for errors.

    Raises:
        UserError: the folder holds something else, or results of another version.
    """
    path = Path(folder) / "results.json"
    if not Path(folder).exists():
        return None
    if not path.is_file():
        raise UserError(f"{where}: {path} is missing; give DIR/TASK/SYSTEM of a finished evaluate.py")
    try:
        entry: Entry = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: {path} is not valid JSON: {error}; score it again with evaluate.py") from error
    if not is_scored(entry):
        raise UserError(
            f"{where}: {path} is not one system's results of this version; give DIR/TASK/SYSTEM, and score it "
            "again with evaluate.py --score_only"
        )
    return entry


def is_scored(entry: Any) -> bool:
    """Whether the content of a file is what :func:`mlmf.evaluation.results.build_results` made, as far as is read here."""
    try:
        first = next(iter(entry["settings"].values()))
        scores = [key["scores"]["answerable_f1"] for key in entry["keys"].values()]
        whole = (
            entry.keys() >= READ
            and "raw" in entry["keys"]
            and "system" in first
            and all("mean" in one for one in scores)
        )
        return whole and entry["schema_version"] == SCHEMA_VERSION
    except (AttributeError, KeyError, StopIteration, TypeError):
        return False


def read_group(group: str, folders: Mapping[str, str]) -> dict[str, Entry | None]:
    """The runs of one group by label, in the order given, each renamed to its label.

    Raises:
        UserError: as :func:`read_run`; and where a run is of another benchmark, or of part of the questions.
    """
    return {label: _labelled(label, folder, group) for label, folder in folders.items()}


def _labelled(label: str, folder: str, group: str) -> Entry | None:
    entry = read_run(folder, f"{group}.{label}")
    return None if entry is None else belonging(entry, group, label, folder)


def belonging(entry: Entry, group: str, label: str, folder: str) -> Entry:
    """A run under its label, if it belongs in the group.

    Raises:
        UserError: it is about another benchmark, part of the questions, or conversations that its checkpoint trained on.
    """
    wanted = BENCHMARKS.get(group)
    if wanted != entry["task"] and wanted and entry["task"] in BENCHMARKS.values():
        raise UserError(f"{group}.{label}: {folder} is about {entry['task']}, and this group about {wanted}")
    if entry["is_limited"] and group not in (IN_DOMAIN, SPEED):
        asked, of = entry["n"]["effective"], entry["n"]["original"]
        raise UserError(
            f"{group}.{label}: {folder} is about {asked:,} of {of:,} questions; run evaluate.py without --limit and "
            "--conversations"
        )
    if entry["trained_on"] and entry["trained_on"]["scored"]:
        raise UserError(
            f"{group}.{label}: {folder} is about conversations that its checkpoint was trained on "
            f"({', '.join(entry['trained_on']['scored'][:5])}), which says nothing about memory; score it on others"
        )
    return {**entry, "system": label}


def figures(entry: Entry | None, names: tuple[str, ...], timed: Entry | None = None) -> Figures:
    """Headline figures under the published key, shares from 0 to 1.

    Args:
        entry: the run.
        names: the figures.
        timed: a run beside full_context on part of the questions, for ``speedup`` where ``entry`` was asked without it.
    """
    if entry is None:
        return dict.fromkeys(names)
    key = entry["keys"]["raw"]
    scores, retention, ratios = key["scores"], key["retention"], entry["ratios_to_full_context"]
    if ratios is None and timed is not None and timed["task"] == entry["task"]:
        ratios = timed["ratios_to_full_context"]
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
    headline: dict[str, Any] = {group: headline_figures(groups, group, main, kinds) for group, kinds in names.items()}
    for group, kinds in names.items():
        for label in groups[group]:
            headline.setdefault(label, {})[group] = headline_figures(groups, group, label, kinds)
    return headline


def headline_figures(
    groups: Mapping[str, Mapping[str, Entry | None]], group: str, label: str, names: tuple[str, ...]
) -> Figures:
    """:func:`figures` of a label in a group; a checkpoint that trained in-domain is another than the one that was timed."""
    timed = None if group == IN_DOMAIN else groups[SPEED].get(label)
    return figures(groups[group].get(label), names, timed)
