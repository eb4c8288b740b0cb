"""What answers cost, from samples whose sums can be done in the head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlmf.evaluation.samples import Sample
from mlmf.evaluation.usage import ratios, usage


def sample(index: int, *, conversation: str = "c", **changes: Any) -> Sample:
    return Sample(conversation, index, f"{conversation}#{index}", "Who?", prediction="x", **changes)


SAMPLES = [
    sample(
        0, tokens_read=10, tokens_written=2, tokens_history=100, turns_history=4, seconds=1.0, seconds_ingest=3.0,
        seconds_decoding=0.5, memory_bytes=500, gates={"working": 0.2},
    ),
    sample(
        1, tokens_read=30, tokens_written=6, tokens_history=200, turns_history=8, seconds=3.0, seconds_ingest=5.0,
        seconds_decoding=1.0, memory_bytes=700, gates={"working": 0.4},
    ),
    sample(0, conversation="d", tokens_read=20, tokens_history=200, turns_history=8, seconds=2.0, seconds_ingest=1.0),
    sample(2, status="error", error="why", tokens_history=900, seconds=99.0, memory_bytes=900),
]  # fmt: skip


def test_usage_is_per_answered_question() -> None:
    cost = usage(SAMPLES)
    assert cost["tokens_read"] == 20.0
    assert cost["tokens_written"] == pytest.approx(8 / 3)
    assert cost["history_share"] == pytest.approx((0.1 + 0.15 + 0.1) / 3)
    assert cost["seconds"] == {"mean": 2.0, "p50": 2.0, "p95": pytest.approx(2.9)}
    assert cost["tokens_per_second"] == pytest.approx(8 / 6)
    # the first token of each answer comes with reading the prompt, and one answer was not timed
    assert cost["decode_tokens_per_second"] == pytest.approx(6 / 1.5)
    assert cost["memory_bytes"] == 700
    assert cost["gates"] == {"working": pytest.approx(0.3)}


def test_observing_counts_once_for_a_conversation() -> None:
    # c took 5 seconds in all, of which 3 had passed at its first question; d took 1
    assert usage(SAMPLES)["ingest_seconds"] == {"per_conversation": 3.0, "per_1000_tokens": pytest.approx(15.0)}


def test_minutes_cover_observing_and_answering() -> None:
    # 6 seconds of answering and 6 of observing for 3 questions
    assert usage(SAMPLES)["minutes_per_1000_questions"] == pytest.approx(1000 / 60 * 4)
    # under another seed everything is observed anew
    again = [replace(one, seed=1) for one in SAMPLES]
    assert usage([*SAMPLES, *again])["minutes_per_1000_questions"] == pytest.approx(1000 / 60 * 4)


def test_what_had_no_room_is_counted() -> None:
    samples = [sample(0, turns_left_out=3, turns_history=12), sample(1, turns_history=8)]
    assert usage(samples)["cut"] == {"questions": 1, "turns": 3.0, "share": 0.25}


def test_nothing_answered_costs_none() -> None:
    cost = usage(SAMPLES[-1:])
    assert cost["seconds"] == {"mean": None, "p50": None, "p95": None}
    assert cost["ingest_seconds"] == {"per_conversation": None, "per_1000_tokens": None}
    assert set(ratios(cost, cost).values()) == {None}


def test_ratios_are_to_full_context() -> None:
    full = usage(
        [
            sample(
                0, tokens_read=200, tokens_written=2, tokens_history=400, turns_history=8, seconds=4.0,
                seconds_decoding=0.25, seconds_ingest=6.0, memory_bytes=1000,
            )
        ]
    )  # fmt: skip
    found = ratios(usage(SAMPLES), full)
    assert found == {
        "tokens_read": 0.1, "tokens_written": pytest.approx(4 / 3), "history_share": pytest.approx(0.35 / 1.5),
        "tokens_per_second": pytest.approx(8 / 3), "decode_tokens_per_second": 1.0,
        "minutes_per_1000_questions": pytest.approx(0.4), "memory_bytes": 0.7, "seconds_mean": 0.5, "seconds_p50": 0.5,
        "seconds_p95": pytest.approx(2.9 / 4), "ingest_seconds_per_conversation": 0.5,
        "ingest_seconds_per_1000_tokens": pytest.approx(1.0),
    }  # fmt: skip
