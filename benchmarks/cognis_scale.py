"""How does Cognis grow? Ingest and query one user's memory of 1,000, 10,000 and 100,000 entries.

    python -m benchmarks.cognis_scale                     # about five minutes, no weights
    python -m benchmarks.cognis_scale --encoder all-minilm-l6-v2

Sentences are those of LOCCO with some words exchanged, so that they have its lengths and word frequencies and do not
repeat. Each is kept as a message and, by the rules, as a fact: both count as entries. By default texts are encoded by
summing random vectors of words, so that what is measured is Cognis; the rate of the real encoder is measured apart. Writes
``results/cognis.json``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.hashing import HashingEncoder
from benchmarks.machine import machine
from mlmf.config.cognis import CognisSettings
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.systems.cognis.extract import content_words
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.sqlite import SQLiteStore
from mlmf.systems.cognis.timing import PERCENTILES, StageTimes
from mlmf.types import Query, Session, Turn

RESULTS = Path("results/cognis.json")
SIZES = (1_000, 10_000, 100_000)
TURNS = 20
"""Turns of a session, which is what is ingested at once."""
_USER = "user"
_EXCHANGED = 3


def sessions(seed: int = 0) -> Iterator[Session]:
    """Sessions without end, an hour apart."""
    draw = random.Random(seed)
    said, words = _corpus()
    start, index = datetime(2020, 1, 1), 0
    while True:
        turns = []
        for number in range(TURNS):
            text = draw.choice(said).split()
            for place in draw.sample(range(len(text)), _EXCHANGED):
                text[place] = draw.choice(words)
            turns.append(Turn(f"S{index}:{number}", draw.choice(("Anna", "Ben")), " ".join(text)))
        yield Session(index, start + timedelta(hours=index), tuple(turns))
        index += 1


@lru_cache(maxsize=1)
def _corpus() -> tuple[list[str], list[str]]:
    """What LOCCO's training users say in at least six words that say something, and all such words."""
    texts = [turn.text for one in load_task("locco", split="train").conversations for turn in one.turns]
    words = {text: content_words(text) for text in texts}
    return [text for text in texts if len(words[text]) >= 6], sorted({word for row in words.values() for word in row})


def questions(count: int) -> list[Query]:
    """Questions about what other sessions say; every fourth names a day."""
    turns = [turn for session, _ in zip(sessions(1), range(count), strict=False) for turn in session.turns[:1]]
    asked = [f"What did {turn.speaker} say about {' '.join(content_words(turn.text)[:4])}" for turn in turns]
    return [Query(text + (" on 3 January 2020?" if i % 4 == 0 else "?")) for i, text in enumerate(asked)]


def measure(encoder: Encoder, name: str, sizes: Sequence[int], asked: int, folder: Path) -> list[dict[str, Any]]:
    """Grow one memory through the sizes; figures of a size are of the step up to it and of queries at it."""
    path = folder / "cognis.db"
    memory = CognisMemory(encoder, encoder_name=name, settings=CognisSettings(documents=str(path)))
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    feed, entries, rows = sessions(), 0, []
    for size in sizes:
        times, first = [], entries
        while entries < size:
            started = time.perf_counter()
            report = memory.add(_USER, next(feed))
            times.append(time.perf_counter() - started)
            entries += TURNS + report.added + report.updated
        memory.search(_USER, questions(2), 20)  # the index takes in the last session
        memory.times.seconds.clear()
        for query in questions(asked):
            memory.search(_USER, [query], 20)
        gc.collect()
        rows.append(
            {
                "entries": entries,
                "ingest_entries_per_second": (entries - first) / sum(times),
                "ingest_session_ms": _percentiles(times[len(times) // 2 :]),
                "query_ms": memory.times.table(),
                "memory_mb": (process.memory_info().rss - before) / 2**20,
                "file_mb": sum(file.stat().st_size for file in folder.glob("cognis.db*")) / 2**20,
            }
        )
    memory.close()
    reopened = CognisMemory(encoder, encoder_name=name, settings=CognisSettings(documents=str(path)))
    started = time.perf_counter()
    reopened.search(_USER, questions(1), 20)
    rows[-1]["first_query_after_opening_ms"] = 1000 * (time.perf_counter() - started)
    reopened.close()
    return rows


def opening_with_users(users: int, folder: Path) -> float:
    """Milliseconds to open a file of many users and find one, each with one session."""
    path = folder / "users.db"
    memory = CognisMemory(HashingEncoder(48), encoder_name="hashing", settings=CognisSettings(documents=str(path)))
    session = next(sessions())
    for user in range(users):
        memory.record(f"user-{user}", session)
    memory.close()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        store = SQLiteStore(path)
        store.latest("user-0")
        times.append(time.perf_counter() - started)
        store.close()
    return 1000 * float(np.median(times))


def texts_per_second(name: str, count: int = 512) -> float:
    """How fast a real encoder reads such sentences."""
    encoder = SentenceEncoder(name)
    texts = [
        turn.text for session, _ in zip(sessions(), range(count // TURNS + 1), strict=False) for turn in session.turns
    ]
    encoder.encode_documents(texts[:64])
    started = time.perf_counter()
    encoder.encode_documents(texts[:count])
    return count / (time.perf_counter() - started)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    times = StageTimes()
    times.seconds["all"].extend(seconds)
    return times.table()["all"]


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Throughput and size by number of entries; milliseconds of a query by stage."""
    table = Table("entries", "entries/s", "a session in, p95 ms", "memory MB", "file MB")
    for row in rows:
        table.add_row(
            f"{row['entries']:,}",
            f"{row['ingest_entries_per_second']:.0f}",
            f"{row['ingest_session_ms']['p95']:.0f}",
            f"{row['memory_mb']:.0f}",
            f"{row['file_mb']:.0f}",
        )
    console.print(table)
    stages = Table("ms: p50, p95, p99", *(f"{row['entries']:,}" for row in rows))
    for stage in rows[-1]["query_ms"]:
        figures = [[row["query_ms"][stage][f"p{share}"] for share in PERCENTILES] for row in rows]
        stages.add_row(stage, *("  ".join(f"{value:.1f}" for value in values) for values in figures))
    console.print(stages)


def main() -> int:
    """Parse, measure, print and write."""
    logging.getLogger("mlmf").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cognis_scale", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--encoder", default="hashing", help="hashing, or any encoder of evaluate.py")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of entries, rising")
    parser.add_argument("--queries", type=int, default=200, help="queries timed at each size")
    parser.add_argument("--users", type=int, default=1_000, help="users of the file that is opened")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file that is written")
    arguments = parser.parse_args()
    if arguments.sizes != sorted(set(arguments.sizes)) or arguments.sizes[0] < TURNS:
        raise UserError(f"--sizes must rise, from {TURNS} up, got {arguments.sizes}")
    if arguments.queries < 1 or arguments.users < 1:
        raise UserError("--queries and --users must be at least 1")
    console = Console()
    hashing = arguments.encoder == "hashing"
    encoder: Encoder = HashingEncoder() if hashing else SentenceEncoder(arguments.encoder)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(encoder, arguments.encoder, arguments.sizes, arguments.queries, Path(folder))
        opening = opening_with_users(arguments.users, Path(folder))
    show(rows, console)
    console.print(f"a file of {arguments.users:,} users opens in {opening:.0f} ms")
    content: dict[str, Any] = {
        "encoder": arguments.encoder,
        "sizes": rows,
        "opening_ms": {"users": arguments.users, "p50": opening},
        "queries": arguments.queries,
        "load_average": os.getloadavg()[0],
    }
    if hashing:
        content["minilm_texts_per_second"] = texts_per_second("all-minilm-l6-v2")
        console.print(f"all-minilm-l6-v2 encodes {content['minilm_texts_per_second']:.0f} such sentences a second")
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_json(arguments.output, {**content, "machine": machine(), "created_at": created})
    return 0


if __name__ == "__main__":
    run_script(main)
