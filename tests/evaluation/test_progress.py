"""What tells how long a run still takes where no bar can be drawn."""

from __future__ import annotations

import logging

import pytest

import mlmf.evaluation.progress as progress_module
from mlmf.evaluation.progress import progress_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock shows, to be set."""
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def test_a_log_says_once_a_minute_what_is_left(
    clock: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with caplog.at_level(logging.INFO), progress_bar("locomo, bm25", 2000) as advance:
        advance(1000)  # of an earlier run, at once
        for seconds in range(30, 301, 30):
            clock[0] = seconds
            advance(50)
    # 1,000 in the first line are no speed of this run; the second one knows better
    assert [record.getMessage() for record in caplog.records] == [
        "locomo, bm25: 1,100 of 2,000, 1 min left",
        "locomo, bm25: 1,200 of 2,000, 8 min left",
        "locomo, bm25: 1,300 of 2,000, 7 min left",
        "locomo, bm25: 1,400 of 2,000, 6 min left",
        "locomo, bm25: 1,500 of 2,000, 5 min left",
    ]


def test_it_can_be_silenced(
    clock: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")
    with caplog.at_level(logging.INFO), progress_bar("locomo, bm25", 2) as advance:
        clock[0] = 100.0
        advance(1)
    assert not caplog.records
