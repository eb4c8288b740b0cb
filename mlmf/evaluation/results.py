"""``results.json``: everything one system scored on one task, with what is needed to judge and repeat it.

Schema version 1. Keys are always present and always in this order; a number that does not exist is ``null``.

* ``schema_version``: 1
* ``system``, ``task``: names
* ``settings``: everything that may have changed an answer; equal to ``settings.json``
* ``data``: ``source`` (file name), ``sha256``, ``is_pinned`` (whether data and questions are the published ones),
  ``probes_source`` and ``probes_sha256`` (where the questions come from another file)
* ``seeds``: the seeds of this run
* ``n``: ``original`` (questions of the task), ``effective`` (asked), ``failed``
* ``is_limited``: whether fewer questions were asked than the task has
* ``scores``: see :func:`mlmf.evaluation.scores.aggregate`
* ``controls``: ``always_abstain``, the scores of refusing every question
* ``usage``: see :func:`mlmf.evaluation.scores.usage`
* ``versions``: Python and the packages that compute
* ``git_commit``: of the source checkout, ``-dirty`` when files differ from it; ``null`` for an installed package
* ``created_at``: UTC, ISO 8601

The file in the output folder itself holds ``{"schema_version": 1, "results": [...]}`` over all tasks and systems of a run.
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

from mlmf.data.tasks import LoadedData
from mlmf.evaluation.samples import Sample
from mlmf.evaluation.scores import aggregate, always_abstain, usage
from mlmf.paths import atomic_write_text

SCHEMA_VERSION = 1
_PACKAGES = ("mlmf", "torch", "transformers", "peft", "nltk", "numpy", "scipy")


def build_results(
    system: str, data: LoadedData, samples: Sequence[Sample], *, settings: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The content of ``results.json``; the module's text describes it.

    Args:
        system: name of the system.
        data: the task as loaded, before any limit.
        samples: one per question asked.
        settings: as given to :class:`~mlmf.evaluation.samples.SampleFile`.
        seed: of the bootstrap.
    """
    original = sum(len(conversation.questions) for conversation in data.conversations)
    return {
        "schema_version": SCHEMA_VERSION,
        "system": system,
        "task": data.task,
        "settings": dict(settings),
        "data": {
            "source": data.source,
            "sha256": data.sha256,
            "is_pinned": data.is_pinned,
            "probes_source": data.probes_source,
            "probes_sha256": data.probes_sha256,
        },
        "seeds": [seed],
        "n": {
            "original": original,
            "effective": len(samples),
            "failed": sum(sample.status == "error" for sample in samples),
        },
        "is_limited": len(samples) < original,
        "scores": aggregate(data.task, samples, seed=seed),
        "controls": {"always_abstain": aggregate(data.task, always_abstain(data.task, samples), seed=seed)},
        "usage": usage(samples),
        "versions": _versions(),
        "git_commit": _git_commit(),
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
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
