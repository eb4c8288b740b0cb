"""Results for people: ``report.md``, and the sentences that every report begins with."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from mlmf.data.locco import LOCCO_SHA256, PROBE_SHA256
from mlmf.data.locomo import CONTESTED_TRAPS, LOCOMO_SHA256
from mlmf.evaluation.compare import Comparisons
from mlmf.evaluation.folder import Answers
from mlmf.evaluation.metrics import main_metric
from mlmf.evaluation.report_tables import by_task, tables
from mlmf.evaluation.run_tables import unlike_settings
from mlmf.evaluation.tables import Results, markdown_grid, number, percent

SHOWN_SAMPLES = 10
SHOWN_LINES = 3
SHOWN_CHARACTERS = 160
_PUBLISHED = {*LOCCO_SHA256.values(), LOCOMO_SHA256}


def first_line(results: Sequence[Results]) -> str:
    """What a reader must know before any number: a limited run says so, and how limited it is."""
    limited = [entry for entry in results if entry["is_limited"]]
    if not limited:
        return f"# Results on {', '.join(dict.fromkeys(entry['task'] for entry in results))}"
    sizes: dict[str, list[str]] = {}
    for entry in limited:
        size = f"n={entry['n']['effective']:,} of {entry['n']['original']:,}"
        sizes.setdefault(size, []).append(f"{entry['task']}, {entry['system']}")
    # the common case, one limit for everything, reads without naming everything
    if len(sizes) == 1 and len(limited) == len(results):
        return f"SMOKE, {next(iter(sizes))}"
    return "SMOKE, " + "; ".join(f"{size} ({'; '.join(members)})" for size, members in sizes.items())


def warnings(results: Sequence[Results]) -> list[str]:
    """Sentences about what makes the numbers not comparable, with others or with each other."""
    lines = list(dict.fromkeys(line for entry in results for line in _unpinned(entry)))
    for task, entries in by_task(results).items():
        if len({(entry["data"]["sha256"], entry["data"]["probes_sha256"]) for entry in entries}) > 1:
            lines.append(f"The systems on {task} were asked about different data; their rows cannot be compared.")
        if len(judges := _judges(entries)) > 1:
            lines.append(f"The systems on {task} were judged by {', '.join(judges)}; their J cannot be compared.")
        lines += unlike_settings([(entry["system"], entry) for entry in entries])
    for entry in results:
        n = entry["n"]
        if n["failed"]:
            key = next(iter(entry["keys"].values()))
            zero = number(key["scores"]["answerable_f1"]["zero_filled"])
            lines.append(
                f"{entry['system']} on {entry['task']}: {n['failed']:,} of {n['answers']:,} questions failed and are "
                f"left out of its means; counted as zero, answerable F1 is {zero}."
            )
        cut = entry["usage"]["cut"]
        if cut["questions"]:
            lines.append(
                f"{entry['system']} on {entry['task']}: {cut['questions']:,} of {n['answers'] - n['failed']:,} questions "
                f"were asked without all turns, since there was no room: {cut['turns']:,.0f} turns on average, "
                f"{percent(cut['share'])} of the history, were cut to the model's window or dropped from a full memory."
            )
        for name, key in entry["keys"].items():
            verdicts = key["scores"]["answerable"]["J"]
            if verdicts and verdicts["failed"]:
                lines.append(
                    f"{entry['system']} on {entry['task']}, {name} key: the LLM judge gave no verdict on "
                    f"{verdicts['failed']:,} of {verdicts['n'] + verdicts['failed']:,} answers; J leaves them out."
                )
        if entry["trained_on"] and entry["trained_on"]["scored"]:
            lines.append(
                f"{entry['system']} on {entry['task']}: its checkpoint was trained on "
                f"{len(entry['trained_on']['scored']):,} of the conversations it is scored on."
            )
    return lines


def _unpinned(entry: Results) -> list[str]:
    """Which file makes the data other than the benchmark; nobody takes their own conversations for one."""
    data = entry["data"]
    if data["is_pinned"] or entry["task"] == "jsonl":
        return []
    lines = []
    if data["sha256"] not in _PUBLISHED:
        lines.append(
            f"Unpinned data: {data['source']} (sha256 {data['sha256'][:12]}) is none of the published files that "
            "this version knows."
        )
    if data["probes_source"] and data["probes_sha256"] not in PROBE_SHA256.values():
        lines.append(
            f"Unpinned questions: {data['probes_source']} (sha256 {data['probes_sha256'][:12]}) is not a file of probes "
            "that comes with mlmf."
        )
    return lines


def markdown_report(results: Sequence[Results], answers: Answers, comparisons: Comparisons, seed: int) -> str:
    """The text of ``report.md``.

    Args:
        results: contents of results files, at least one.
        answers: by task and system, as :func:`mlmf.evaluation.folder.read_answers` gives them.
        comparisons: the paired tests between them.
        seed: picks the sample questions; every system shows the same ones.
    """
    parts = [first_line(results), *(f"**Warning.** {warning}" for warning in warnings(results))]
    for task, entries in by_task(results).items():
        parts.append(f"## {task}")
        for table in tables(entries, comparisons):
            note = f" ({table.note})" if table.note else ""
            parts.append(f"{table.title}{note}:\n\n{markdown_grid(table.grid)}")
        parts.append(notes(entries))
        for entry in entries:
            shown = _shown(answers[task, entry["system"]], seed)
            parts.append(f"### {task}, {entry['system']}: {len(shown)} answer{'' if len(shown) == 1 else 's'}")
            parts.append(_sample_table(shown, main_metric(task)))
    return "\n\n".join(parts) + "\n"


def notes(results: Sequence[Results]) -> str:
    """What a reader of the tables of one task must know of their columns."""
    text = (
        "The interval resamples conversations. Wrongly refused: share of the answerable questions. Claims on traps: share "
        "of traps answered with an assertion; trap answers: with the wrong answer that the trap names. "
        "Macro: mean of the answerable categories. Evidence recall @ k: the share of evidence turns among the k turns "
        "read on average; questions without known evidence are left out. Tokens and seconds are per question, for "
        "answering alone."
    )
    text += "".join(
        f" {entry['system']}: one checkpoint for each of {len(entry['folds'])} folds; each conversation was asked of the one "
        "whose training left it out."
        for entry in results
        if entry["folds"] is not None
    )
    for judge in _judges(results):
        text += (
            f" J: share of the answerable questions whose answer {judge} found to say what the gold one says; a refusal "
            "is wrong without being judged, and traps are not judged. It depends on the judge and is no F1: compare it "
            "within one judge and prompt alone."
        )
    if results[0]["task"] == "locomo":
        text += (
            " F1 is LoCoMo's official one; F1 with traps is its official overall mean (categories 1 to 5), of which "
            "category 5 alone gives 22.5 points to whoever always abstains. "
            f"{len(CONTESTED_TRAPS)} of its traps are answered in their conversation ({', '.join(CONTESTED_TRAPS)}); they "
            "count as traps all the same, as in the official scorer."
        )
    return text


def _judges(results: Sequence[Results]) -> list[str]:
    """The LLM judges behind some results, each with what its verdicts depend on."""
    found = [entry["scoring"]["llm_judge"] for entry in results]
    names = [
        f"{judge['model']}{f' at {server}' if (server := judge['server']) else ''} (prompt {judge['prompt_version']})"
        for judge in found
        if judge is not None
    ]
    return list(dict.fromkeys(names))


def _shown(answers: Sequence[Mapping[str, Any]], seed: int) -> list[Mapping[str, Any]]:
    """A few answers under the first key, of the last time they were asked."""
    keys = list(dict.fromkeys(one["key"] for one in answers))
    final = [one for one in answers if one["key"] == keys[0]]
    latest = list({(one["conversation_id"], one["index"]): one for one in final}.values())
    chosen = sorted(random.Random(seed).sample(range(len(latest)), min(SHOWN_SAMPLES, len(latest))))
    return [latest[position] for position in chosen]


def _sample_table(answers: Sequence[Mapping[str, Any]], metric: str) -> str:
    header = ["question", "gold", "answer", "score", "recalled"]
    rows = []
    for one in answers:
        gold = "(not in the conversation)" if one["is_trap"] else one["gold"] or ""
        text = one["prediction"] if one["status"] == "ok" else f"(failed: {one['error']})"
        lines = " / ".join(
            shorten(line, SHOWN_CHARACTERS, placeholder=" ...") for line in one["recalled_lines"][:SHOWN_LINES]
        )
        rows.append([one["question"], gold, text or "(empty)", number(one["metrics"].get(metric)), lines])
    return markdown_grid((header, rows))
