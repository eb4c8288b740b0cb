"""``results.json``: everything one system scored on one task, with what is needed to judge and repeat it.

``docs/evaluation.md`` describes the schema key by key. Keys are always present and always in the same order; a number that
does not exist is ``null``. The file in the output folder itself holds
``{"schema_version": ..., "results": [...], "comparisons": [...], "ablations": [...]}`` over all tasks and systems there.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mlmf.data.locco import PERIODS, PeriodSplit
from mlmf.data.tasks import LoadedData
from mlmf.evaluation.consistency import ConsistencyJudge
from mlmf.evaluation.keys import AnswerKey
from mlmf.evaluation.plan import question_period
from mlmf.evaluation.retention import figures_over_seeds, retention
from mlmf.evaluation.samples import Sample
from mlmf.evaluation.scored import Scored, always_abstain, score_samples
from mlmf.evaluation.scores import aggregate, over_seeds
from mlmf.evaluation.usage import usage
from mlmf.paths import atomic_write_text

SCHEMA_VERSION = 4
_PACKAGES = ("mlmf", "torch", "transformers", "peft", "nltk", "numpy", "scipy")


def build_results(
    system: str,
    data: LoadedData,
    samples: Sequence[Sample],
    by_key: Mapping[str, dict[str, Any]],
    *,
    settings: Mapping[str, Any],
    scoring: Mapping[str, Any],
    trained_on: Mapping[str, Any] | None,
    folds: Sequence[Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The content of ``results.json`` of one system on one task.

    Args:
        system: name of the system.
        data: the task as loaded, before any limit.
        samples: one per answer of every seed, failed ones included.
        by_key: what :func:`score_key` gives for each key.
        settings: by seed, as given to :class:`~mlmf.evaluation.samples.SampleFile`.
        scoring: what the scores depend on beside the answers.
        trained_on: ``ids`` of the conversations that the checkpoint was trained on (null where it does not say) and which
            of them were ``scored``; ``None`` for a system without a checkpoint.
        folds: by fold, ids of the conversations that its checkpoint was asked about; ``None`` where all asked the same one.
    """
    original = sum(len(conversation.questions) for conversation in data.conversations)
    effective = len({(sample.conversation_id, sample.index) for sample in samples})
    return {
        "schema_version": SCHEMA_VERSION,
        "system": system,
        "task": data.task,
        "settings": dict(settings),
        "scoring": dict(scoring),
        "data": {
            "source": data.source,
            "sha256": data.sha256,
            "is_pinned": data.is_pinned,
            "probes_source": data.probes_source,
            "probes_sha256": data.probes_sha256,
        },
        "trained_on": None if trained_on is None else dict(trained_on),
        "folds": None if folds is None else [list(ids) for ids in folds],
        "seeds": sorted(map(int, settings)),
        "n": {
            "original": original,
            "effective": effective,
            "answers": len(samples),
            "failed": sum(sample.status == "error" for sample in samples),
        },
        "is_limited": effective < original,
        "keys": dict(by_key),
        "usage": usage(samples),
        # filled in by the run that knows what full_context took
        "ratios_to_full_context": None,
        "versions": _versions(),
        "git_commit": _git_commit(),
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def score_key(
    task: str,
    samples: Sequence[Sample],
    key: AnswerKey,
    *,
    judge: ConsistencyJudge,
    llm_judge: ConsistencyJudge | None,
    success_threshold: float,
    split: PeriodSplit | None,
    seed: int,
) -> tuple[list[Scored], dict[str, Any]]:
    """Score the answers of one system against one key.

    Args:
        task: decides metrics and categories.
        samples: one per answer of every seed, failed ones included.
        key: the gold side.
        judge: of consistency.
        llm_judge: of column J, if it is wanted.
        success_threshold: main F1 from which an answer counts as a success.
        split: how periods are divided where questions were asked after each, else ``None``.
        seed: of the bootstrap.

    Returns:
        The scored answers, and the entry of the key: its audit, ``scores``, ``over_seeds`` and ``controls`` (of the
        answers after the last period, where there are periods), and ``retention`` or null.
    """

    def score(answers: Sequence[Sample]) -> list[Scored]:
        return score_samples(
            task, answers, key.conversations, judge=judge, llm_judge=llm_judge, success_threshold=success_threshold
        )

    scored = score(samples)
    final = [one for one in scored if one.sample.period in (None, PERIODS)]
    control = score(always_abstain([one.sample for one in final]))
    found = None
    seeds = over_seeds(final)
    if split is not None:
        periods = {
            (one.conversation_id, one.index): question_period(one, len(conversation.sessions), split)
            for conversation in key.conversations
            for one in conversation.questions
        }
        found = {"split": split, **retention(scored, periods, seed=seed)}
        seeds |= figures_over_seeds(scored, periods)
    entry = {
        **key.describe(),
        "scores": aggregate(task, final, seed=seed),
        "over_seeds": seeds,
        "controls": {"always_abstain": aggregate(task, control, seed=seed)},
        "retention": found,
    }
    return scored, entry


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Write a results file, all or nothing.

    Raises:
        ValueError: a number is not finite; such a result is a bug and is never written.
    """
    atomic_write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _versions() -> dict[str, str | None]:
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout this package lies in; ``None`` when it is installed elsewhere, or git is missing."""
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None
