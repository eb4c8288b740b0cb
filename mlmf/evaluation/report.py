"""Results for people: ``report.md`` and the table a run ends with. One row per system, one column per measure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from textwrap import fill, shorten
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mlmf.data.locco import LOCCO_SHA256, PROBE_SHA256
from mlmf.data.locomo import LOCOMO_SHA256
from mlmf.evaluation.samples import Sample

SHOWN_SAMPLES = 10
SHOWN_LINES = 3
SHOWN_CHARACTERS = 160
HEADER_CHARACTERS = 10
CONTROL = "always abstain"
_PUBLISHED = {*LOCCO_SHA256.values(), LOCOMO_SHA256}
Results = Mapping[str, Any]
Grid = tuple[list[str], list[list[str]]]


def first_line(results: Sequence[Results]) -> str:
    """What a reader must know before any number: a limited run says so, and how limited it is."""
    limited = {entry["task"]: entry["n"] for entry in results if entry["is_limited"]}
    tasks = list(dict.fromkeys(entry["task"] for entry in results))
    if not limited:
        return f"# Results on {', '.join(tasks)}"
    parts = [f"n={n['effective']:,} of {n['original']:,} ({task})" for task, n in limited.items()]
    # the common case, one task, reads without the bracket
    line = "; ".join(parts) if len(tasks) > 1 else parts[0].removesuffix(f" ({tasks[0]})")
    return f"SMOKE, {line}"


def warnings(results: Sequence[Results]) -> list[str]:
    """Sentences about what makes the numbers not comparable with others."""
    lines = list(dict.fromkeys(line for entry in results for line in _unpinned(entry)))
    for entry in results:
        n = entry["n"]
        if n["failed"]:
            zero = _number(entry["scores"]["answerable_f1"]["zero_filled"])
            lines.append(
                f"{entry['system']} on {entry['task']}: {n['failed']:,} of {n['effective']:,} questions failed and are "
                f"left out of its means; counted as zero, answerable F1 is {zero}."
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


def main_grid(results: Sequence[Results]) -> Grid:
    """The measures of the systems on one task, then the row of the always-abstain control."""
    header = [
        "system", "answerable F1", "95 % interval", "F1 with traps", "abstains on traps", "wrongly refused",
        "evidence recall", "tokens read", "history read", "seconds each", "n", "failed",
    ]  # fmt: skip
    rows = [[entry["system"], *_scores(entry["scores"]), *_costs(entry)] for entry in results]
    control = results[0]["controls"]["always_abstain"]
    rows.append([CONTROL, *_scores(control)[:-1], "-", "0", "0.0 %", "-", "-", "-"])
    return header, rows


def short_grid(results: Sequence[Results]) -> Grid:
    """The columns of :func:`main_grid` that fit beside each other on a terminal of 80 columns."""
    header, rows = main_grid(results)
    names = [
        "system", "answerable F1", "95 % interval", "abstains on traps", "wrongly refused", "tokens read",
        "seconds each", "n",
    ]  # fmt: skip
    kept = [header.index(name) for name in names]
    # the title above the table says that F1 is over the answerable questions
    short = [name.removeprefix("answerable ") for name in names]
    return short, [[row[number] for number in kept] for row in rows]


def category_grid(results: Sequence[Results]) -> Grid:
    """F1 by category, the data's own number beside the name, since its names are often mixed up."""
    named = {
        category["category"]: f"{_label(category)} (n={category['n']:,})"
        for entry in reversed(results)
        for category in entry["scores"]["categories"]
    }
    control = {"system": CONTROL, "scores": results[0]["controls"]["always_abstain"]}
    rows = []
    for entry in [*results, control]:
        means = {category["category"]: category["f1"] for category in entry["scores"]["categories"]}
        macro = _number(entry["scores"]["macro_f1"]["mean"])
        rows.append([entry["system"], *(_number(means.get(number)) for number in sorted(named)), macro])
    return ["system", *(named[number] for number in sorted(named)), "macro"], rows


def markdown_report(results: Sequence[Results], samples: Mapping[tuple[str, str], Sequence[Sample]], seed: int) -> str:
    """The text of ``report.md``.

    Args:
        results: contents of the results files of one run, at least one.
        samples: by task and system.
        seed: picks the sample questions; every system shows the same ones.
    """
    parts = [first_line(results), *(f"**Warning.** {warning}" for warning in warnings(results))]
    for task, entries in _by_task(results).items():
        parts.append(f"## {task}")
        parts.append(_markdown(main_grid(entries)))
        if entries[0]["scores"]["categories"]:
            parts.append(f"F1 by category:\n\n{_markdown(category_grid(entries))}")
        parts.append(_notes(entries[0]))
        for entry in entries:
            shown = _shown(samples[task, entry["system"]], seed)
            parts.append(f"### {task}, {entry['system']}: {len(shown)} answer{'' if len(shown) == 1 else 's'}")
            parts.append(_sample_table(shown))
    return "\n\n".join(parts) + "\n"


def terminal_report(results: Sequence[Results]) -> Group:
    """The same tables for a terminal, without the samples."""
    limited = any(entry["is_limited"] for entry in results)
    parts: list[Table | Text] = [Text(first_line(results), style="bold yellow")] if limited else []
    parts += [Text(f"Warning: {warning}", style="yellow") for warning in warnings(results)]
    for task, entries in _by_task(results).items():
        parts.append(_rich(short_grid(entries), _title(entries[0])))
        if entries[0]["scores"]["categories"]:
            parts.append(_rich(category_grid(entries), f"{task}, F1 by category"))
    return Group(*parts)


def _label(category: Mapping[str, Any]) -> str:
    number, name = str(category["category"]), str(category["name"])
    return name if name.endswith(number) else f"{number} {name}"


def _by_task(results: Sequence[Results]) -> dict[str, list[Results]]:
    tasks: dict[str, list[Results]] = {}
    for entry in results:
        tasks.setdefault(entry["task"], []).append(entry)
    return tasks


def _scores(scores: Mapping[str, Any]) -> list[str]:
    interval = scores["answerable_f1"]["ci95"]
    recall = scores["evidence_recall"]
    return [
        _number(scores["answerable_f1"]["mean"]),
        f"{interval[0]:.2f}..{interval[1]:.2f}" if interval else "-",
        _number(scores["overall_f1"]["mean"]),
        _percent(scores["abstention_on_traps"]["mean"]),
        _percent(scores["over_refusal"]["mean"]),
        f"{recall['mean']:.3f} @ {recall['k']:.0f}" if recall["n"] else "-",
    ]


def _costs(entry: Results) -> list[str]:
    cost = entry["usage"]
    seconds = cost["seconds"]["mean"]
    return [
        "-" if cost["tokens_read"] is None else f"{cost['tokens_read']:,.0f}",
        _percent(cost["history_share"]),
        "-" if seconds is None else f"{seconds:.2f}",
        f"{entry['n']['effective']:,}",
        f"{entry['n']['failed']:,}",
    ]


def _title(entry: Results) -> str:
    scores = entry["scores"]
    answerable, traps = scores["answerable_f1"], scores["abstention_on_traps"]
    return (
        f"{entry['task']}: {answerable['n']:,} answerable questions, {traps['n']:,} traps, "
        f"{answerable['conversations']:,} conversation{'' if answerable['conversations'] == 1 else 's'}"
    )


def _notes(entry: Results) -> str:
    text = (
        f"{_title(entry)}. The interval resamples conversations. Wrongly refused: share of the answerable questions. "
        "Macro: mean of the answerable categories. Evidence recall @ k: the share of evidence turns among the k turns "
        "read on average. Tokens and seconds are per question, for answering alone."
    )
    if entry["task"] == "locomo":
        text += (
            " F1 is LoCoMo's official one; F1 with traps is its official overall mean (categories 1 to 5), of which "
            "category 5 alone gives 22.5 points to whoever always abstains."
        )
    return text


def _shown(samples: Sequence[Sample], seed: int) -> list[Sample]:
    numbers = range(len(samples))
    chosen = sorted(random.Random(seed).sample(numbers, min(SHOWN_SAMPLES, len(samples))))
    return [samples[number] for number in chosen]


def _sample_table(samples: Sequence[Sample]) -> str:
    header = ["question", "gold", "answer", "score", "recalled"]
    rows = []
    for sample in samples:
        gold = "(not in the conversation)" if sample.is_trap else sample.gold or ""
        answer = sample.prediction if sample.status == "ok" else f"(failed: {sample.error})"
        lines = " / ".join(
            shorten(line, SHOWN_CHARACTERS, placeholder=" ...") for line in sample.recalled_lines[:SHOWN_LINES]
        )
        rows.append([sample.question, gold, answer or "(empty)", _number(sample.score), lines])
    return _markdown((header, rows))


def _markdown(grid: Grid) -> str:
    header, rows = grid
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _rich(grid: Grid, title: str) -> Table:
    header, rows = grid
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for number, name in enumerate(header):
        # broken here, because the library would rather cut numbers short than break a long header
        folded = fill(name, HEADER_CHARACTERS, break_long_words=False, break_on_hyphens=False)
        table.add_column(folded, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
