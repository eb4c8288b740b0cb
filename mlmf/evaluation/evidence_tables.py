"""Tables of evidence: how well the turns, and the sessions, that hold an answer were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mlmf.evaluation.tables import Grid, Results, category_label, number, percent

Unit = Literal["turns", "sessions"]
SHOWN_K = ("5", "10")
"""The k of the columns any@k and all@k."""


def evidence_grid(results: Sequence[Results], key: str, unit: Unit = "turns") -> Grid:
    """Figures of finding of each system, and what share of all turns was read for it.

    Args:
        results: of one task.
        key: of the answers.
        unit: whether the turns themselves or their sessions should be found.
    """
    found = [(entry["system"], entry["keys"][key]["scores"]["evidence"]) for entry in results]
    cutoffs = list(found[0][1]["recall_at"])
    header = [
        "system",
        *(f"recall@{k}" for k in cutoffs),
        *_names(),
        "MRR",
        f"NDCG@{cutoffs[-1]}",
        "turns",
        "of all",
        "n",
        "without",
    ]
    rows = []
    for system, scores in found:
        figures = scores if unit == "turns" else scores["sessions"]
        rows.append(
            [
                system,
                *(number(figures["recall_at"][k]) for k in cutoffs),
                *_any_and_all(figures),
                number(figures["mrr"]),
                number(figures["ndcg_at"][cutoffs[-1]]),
                "-" if scores["turns"] is None else f"{scores['turns']:.1f}",
                percent(scores["corpus_share"]),
                f"{scores['n']:,}",
                f"{scores['n_without']:,}",
            ]
        )
    return header, rows


def category_evidence_grid(results: Sequence[Results], key: str) -> Grid:
    """Finding by category: turns and sessions, a row for each system and category of answerable questions."""
    header = [
        "system",
        "category",
        *(f"turns {name}" for name in _names()),
        *(f"sessions {name}" for name in _names()),
        "n",
    ]
    rows = [
        [
            entry["system"],
            category_label(category),
            *_any_and_all(category["evidence"]),
            *_any_and_all(category["evidence"]["sessions"]),
            f"{category['evidence']['n']:,}",
        ]
        for entry in results
        for category in entry["keys"][key]["scores"]["categories"]
        if category["evidence"] is not None and category["evidence"]["n"]
    ]
    return header, rows


def _names() -> list[str]:
    return [f"{what}@{k}" for what in ("any", "all") for k in SHOWN_K]


def _any_and_all(figures: Mapping[str, Any]) -> list[str]:
    return [number(figures[f"{what}_at"][k]) for what in ("any", "all") for k in SHOWN_K]
