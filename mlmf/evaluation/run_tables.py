"""What stands behind the numbers of a task: what answered, within what limits, on which data, made by which version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlmf.evaluation.tables import Grid, Results

ALIKE = ("captions", "answer_model", "base_model", "llm", "chat", "window_tokens", "max_new_tokens")
"""Settings of answers that the systems of a fair comparison share, so far as they read them."""
_SHA_DIGITS = 12


def run_grid(results: Sequence[Results]) -> Grid:
    """How each system of a task was asked, and when its answers were scored."""
    header = ["system", "answered by", "memory in the prompt", "longest answer", "seeds", "scored", "commit"]
    rows = []
    for entry in results:
        settings = _settings(entry)
        budget = settings.get("window_tokens")
        rows.append(
            [
                entry["system"],
                _answered_by(entry),
                "-" if budget is None else f"{budget:,} tokens",
                f"{settings['max_new_tokens']:,} tokens",
                ", ".join(map(str, entry["seeds"])),
                str(entry["created_at"])[:10],
                "-" if entry["git_commit"] is None else _short_commit(entry["git_commit"]),
            ]
        )
    return header, rows


def data_note(results: Sequence[Results]) -> str:
    """Which files a task was read from."""
    files: dict[str, None] = {}
    for entry in results:
        data = entry["data"]
        for name, digest in (("source", "sha256"), ("probes_source", "probes_sha256")):
            if data[name]:
                files[f"{data[name]}, sha256 {data[digest][:_SHA_DIGITS]}"] = None
    captions = {_settings(entry)["captions"] for entry in results}
    shown = ""
    if results[0]["task"] == "locomo" and len(captions) == 1:
        shown = f"; captions of shared pictures {'included' if captions == {True} else 'left out'}"
    return "; ".join(files) + shown


def unlike_settings(labelled: Sequence[tuple[str, Results]]) -> list[str]:
    """Sentences about settings in which the systems of one task differ, so that a difference may be theirs.

    Runs into one folder may have been made at different times, each in good order by itself.

    Args:
        labelled: what each system is called beside its results, all of one task.
    """
    lines = []
    for name in ALIKE:
        labels: dict[str, list[str]] = {}
        for label, entry in labelled:
            value = _settings(entry).get(name)
            if value is not None:
                labels.setdefault(str(value), []).append(label)
        if len(labels) > 1:
            found = "; ".join(f"{value} for {', '.join(members)}" for value, members in labels.items())
            lines.append(f"The systems on {labelled[0][1]['task']} were not asked alike: {name} is {found}.")
    return lines


def _settings(entry: Results) -> Mapping[str, Any]:
    """Those of the first seed; seeds differ in nothing but the seed and its checkpoint."""
    settings: Mapping[str, Any] = next(iter(entry["settings"].values()))
    return settings


def _answered_by(entry: Results) -> str:
    settings = _settings(entry)
    if settings.get("answer_model") == "server":
        return f"{settings['llm']['model']} at {settings['llm']['server']}"
    # one for each seed, and of each seed one for each fold
    found = [one["checkpoint_sha256"] for one in entry["settings"].values()]
    checkpoints = {digest for one in found for digest in (one if isinstance(one, list) else [one])}
    if checkpoints == {None}:
        return str(settings.get("base_model") or "-")
    return (
        f"checkpoint {min(checkpoints)[:_SHA_DIGITS]}" if len(checkpoints) == 1 else f"{len(checkpoints)} checkpoints"
    )


def _short_commit(commit: str) -> str:
    digits, dash, dirty = commit.partition("-")
    return f"{digits[:_SHA_DIGITS]}{dash}{dirty}"
