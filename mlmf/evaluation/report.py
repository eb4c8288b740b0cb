"""Results for people: ``report.md`` and the tables a run ends with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill, shorten
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mlmf.data.locco import LOCCO_SHA256, PROBE_SHA256
from mlmf.data.locomo import LOCOMO_SHA256
from mlmf.evaluation.metrics import main_metric
from mlmf.evaluation.tables import (
    Grid,
    Results,
    category_grid,
    comparison_grid,
    evidence_grid,
    main_grid,
    markdown_grid,
    metric_grid,
    number,
    retention_grid,
    seed_grid,
    short_comparison_grid,
    short_grid,
    title,
    triangle_grid,
)

SHOWN_SAMPLES = 10
SHOWN_LINES = 3
SHOWN_CHARACTERS = 160
HEADER_CHARACTERS = 10
COMPARED = (
    "paired comparison on the same questions, second minus first (interval and first p-value by bootstrap over "
    "conversations; t-test over questions, which it takes for independent; corrected over the pairs by Holm)"
)
_PUBLISHED = {*LOCCO_SHA256.values(), LOCOMO_SHA256}
Answers = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]


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
    for task, entries in _by_task(results).items():
        if len({(entry["data"]["sha256"], entry["data"]["probes_sha256"]) for entry in entries}) > 1:
            lines.append(f"The systems on {task} were asked about different data; their rows cannot be compared.")
        if len(judges := _judges(entries)) > 1:
            lines.append(f"The systems on {task} were judged by {', '.join(judges)}; their J cannot be compared.")
    for entry in results:
        n = entry["n"]
        if n["failed"]:
            key = next(iter(entry["keys"].values()))
            zero = number(key["scores"]["answerable_f1"]["zero_filled"])
            lines.append(
                f"{entry['system']} on {entry['task']}: {n['failed']:,} of {n['answers']:,} questions failed and are "
                f"left out of its means; counted as zero, answerable F1 is {zero}."
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
            f"Unpinned data: {data['source']} (sha256 {data['sha256'][:12]}) is not a published benchmark file."
        )
    if data["probes_source"] and data["probes_sha256"] not in PROBE_SHA256.values():
        lines.append(
            f"Unpinned questions: {data['probes_source']} (sha256 {data['probes_sha256'][:12]}) is not a file of probes "
            "that comes with mlmf."
        )
    return lines


def markdown_report(
    results: Sequence[Results], answers: Answers, comparisons: Sequence[Mapping[str, Any]], seed: int
) -> str:
    """The text of ``report.md``.

    Args:
        results: contents of results files, at least one.
        answers: by task and system, as :func:`mlmf.evaluation.folder.read_answers` gives them.
        comparisons: as :func:`mlmf.evaluation.compare.compare_runs` gives them.
        seed: picks the sample questions; every system shows the same ones.
    """
    parts = [first_line(results), *(f"**Warning.** {warning}" for warning in warnings(results))]
    for task, entries in _by_task(results).items():
        parts.append(f"## {task}")
        parts += [f"{caption}:\n\n{markdown_grid(grid)}" for caption, grid in tables(entries, comparisons)]
        parts.append(_notes(entries))
        for entry in entries:
            shown = _shown(answers[task, entry["system"]], seed)
            parts.append(f"### {task}, {entry['system']}: {len(shown)} answer{'' if len(shown) == 1 else 's'}")
            parts.append(_sample_table(shown, main_metric(task)))
    return "\n\n".join(parts) + "\n"


def tables(results: Sequence[Results], comparisons: Sequence[Mapping[str, Any]]) -> list[tuple[str, Grid]]:
    """Every table of a report with its caption, task by task and key by key."""
    found: list[tuple[str, Grid]] = []
    for task, entries in _by_task(results).items():
        for key, members in _by_key(entries).items():
            found.append((title(members[0], key), main_grid(members, key)))
            if members[0]["keys"][key]["scores"]["categories"]:
                found.append((f"{task}: F1 by category", category_grid(members, key)))
            found.append((f"{task}: every metric over the answerable questions", metric_grid(members, key)))
            found.append((f"{task}: evidence", evidence_grid(members, key)))
            streamed = [entry for entry in members if entry["keys"][key]["retention"]]
            if streamed:
                found.append((f"{task}: retention, share of consistent answers", retention_grid(streamed, key)))
            judged = [entry for entry in streamed if entry["keys"][key]["retention"]["J"]]
            if judged:
                found.append((f"{task}: retention, share judged correct (J)", retention_grid(judged, key, "J")))
            found += [(f"{task}: A[t, p] of {entry['system']}", triangle_grid(entry, key)) for entry in streamed]
            if any(len(entry["seeds"]) > 1 for entry in members):
                found.append((f"{task}: mean ± standard deviation over seeds", seed_grid(members, key)))
            compared = [one for one in comparisons if (one["task"], one["key"]) == (task, key)]
            if compared:
                found.append((f"{task}: {COMPARED}", comparison_grid(compared)))
    return found


def comparison_report(comparisons: Sequence[Mapping[str, Any]]) -> Group:
    """The comparisons of systems on their answerable questions, for a terminal."""
    tables = []
    for task, key in dict.fromkeys((one["task"], one["key"]) for one in comparisons):
        members = [one for one in comparisons if (one["task"], one["key"]) == (task, key)]
        name = task if key == "raw" else f"{task}, {key} key"
        tables.append(_rich(short_comparison_grid(members), f"{name}: second minus first, F1 of answerable questions"))
    return Group(*tables)


def terminal_report(results: Sequence[Results], comparisons: Sequence[Mapping[str, Any]]) -> Group:
    """The same tables for a terminal, without the samples."""
    limited = any(entry["is_limited"] for entry in results)
    parts: list[Table | Text] = [Text(first_line(results), style="bold yellow")] if limited else []
    parts += [Text(f"Warning: {warning}", style="yellow") for warning in warnings(results)]
    for task, entries in _by_task(results).items():
        for key, members in _by_key(entries).items():
            parts.append(_rich(short_grid(members, key), title(members[0], key)))
            if members[0]["keys"][key]["scores"]["categories"]:
                parts.append(_rich(category_grid(members, key), f"{task}, F1 by category"))
            streamed = [entry for entry in members if entry["keys"][key]["retention"]]
            if streamed:
                parts.append(_rich(retention_grid(streamed, key), f"{task}, retention (consistent answers)"))
            several = [entry for entry in members if len(entry["seeds"]) > 1]
            if several:
                parts.append(_rich(seed_grid(several, key), f"{task}, mean ± standard deviation over seeds"))
    return Group(*parts, comparison_report(comparisons))


def _by_task(results: Sequence[Results]) -> dict[str, list[Results]]:
    return _grouped(results, lambda entry: [entry["task"]])


def _by_key(results: Sequence[Results]) -> dict[str, list[Results]]:
    return _grouped(results, lambda entry: list(entry["keys"]))


def _grouped(results: Sequence[Results], names: Callable[[Results], list[str]]) -> dict[str, list[Results]]:
    groups: dict[str, list[Results]] = {}
    for entry in results:
        for name in names(entry):
            groups.setdefault(name, []).append(entry)
    return groups


def _notes(results: Sequence[Results]) -> str:
    text = (
        "The interval resamples conversations. Wrongly refused: share of the answerable questions. Claims on traps: share "
        "of traps answered with an assertion; trap answers: with the wrong answer that the trap names. "
        "Macro: mean of the answerable categories. Evidence recall @ k: the share of evidence turns among the k turns "
        "read on average; questions without known evidence are left out. Tokens and seconds are per question, for "
        "answering alone."
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
            "category 5 alone gives 22.5 points to whoever always abstains."
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


def _rich(grid: Grid, caption: str) -> Table:
    header, rows = grid
    table = Table(title=caption, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for position, name in enumerate(header):
        # broken here, because the library would rather cut numbers short than break a long header
        folded = fill(name, HEADER_CHARACTERS, break_long_words=False, break_on_hyphens=False)
        table.add_column(folded, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
