"""What reaches a system, what is kept of its answers, and what happens when it fails."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.evaluation.plan import visible_sessions
from mlmf.evaluation.runner import KEPT_LINES, Runner
from mlmf.evaluation.samples import Sample, SampleFile, read_samples
from mlmf.types import Answer, Conversation, Query, Session
from tests.evaluation.conftest import SpySystem, make_conversation


def runner(batch_size: int = 2) -> Runner:
    return Runner(batch_size, lambda text: len(text.split()))


def run(system: SpySystem, conversation: Conversation, folder: Path, batch_size: int = 2) -> list[Sample]:
    return runner(batch_size).run(system, [conversation], SampleFile(folder, {}))


def test_a_system_sees_sessions_in_order_and_queries_and_nothing_else(
    conversation: Conversation, tmp_path: Path
) -> None:
    spy = SpySystem()
    other = make_conversation("ben", [dataclasses.replace(conversation.questions[0], conversation_id="ben")])
    runner().run(spy, [conversation, other], SampleFile(tmp_path, {}))
    assert [call if call == "reset" else type(call) for call in spy.calls] == [
        "reset", Session, Session, Session, tuple, tuple, "reset", Session, Session, Session, tuple,
    ]  # fmt: skip
    assert tuple(call for call in spy.calls[:6] if isinstance(call, Session)) == conversation.sessions
    queries = [query for call in spy.calls if isinstance(call, tuple) for query in call]
    assert {type(query) for query in queries} == {Query}
    assert queries[0] == Query("Question 0?")
    everything = repr(spy.calls)
    for secret in ("SECRETGOLD", "SECRETLURE", "evidence", "category", "is_trap"):
        assert secret not in everything
    assert "anna" not in repr(spy.calls[6:])


def test_a_dated_question_is_asked_before_later_sessions(conversation: Conversation, tmp_path: Path) -> None:
    dates = [datetime(2023, 5, 9, 13), None, datetime(2023, 5, 8), datetime(2023, 5, 7)]
    questions = [dataclasses.replace(q, date=date) for q, date in zip(conversation.questions, dates, strict=True)]
    spy = SpySystem()
    samples = run(spy, make_conversation("anna", questions), tmp_path)
    order = [
        call if isinstance(call, str) else call.index if isinstance(call, Session) else call[0].text
        for call in spy.calls
    ]
    assert order == ["reset", "Question 3?", 0, "Question 2?", 1, "Question 0?", 2, "Question 1?"]
    assert [sample.index for sample in samples] == [0, 1, 2, 3]
    session_tokens = 16  # words of "[8 May 2023] Anna: anna says 0 0", twice
    assert [sample.tokens_history / session_tokens for sample in samples] == [2, 3, 1, 0]


def test_a_date_without_a_time_covers_its_day(conversation: Conversation) -> None:
    sessions = conversation.sessions
    assert visible_sessions(sessions, datetime(2023, 5, 9)) == 2
    assert visible_sessions(sessions, datetime(2023, 5, 9, 11, 59)) == 1
    assert visible_sessions(sessions, None) == 3
    undated = [dataclasses.replace(session, date=None) for session in sessions]
    assert visible_sessions(undated, datetime(2020, 1, 1)) == 3


def test_a_sample_keeps_the_answer_and_its_cost(conversation: Conversation, tmp_path: Path) -> None:
    answer = Answer(
        "Cats",
        recalled=("S1:0", "S0:1"),
        gates={"working": 0.25, "episodic": 0.75},
        tokens_read=7,
        tokens_written=3,
        recalled_lines=tuple(f"line {number}" for number in range(KEPT_LINES + 5)),
    )
    refusal = Answer("", abstained=True)
    samples = run(SpySystem({"Question 1?": answer, "Question 3?": refusal}), conversation, tmp_path)
    kept = samples[1]
    assert (kept.prediction, kept.abstained, samples[3].abstained) == ("Cats", False, True)
    assert (kept.recalled, kept.gates, kept.tokens_read, kept.tokens_written) == (
        answer.recalled, answer.gates, 7, 3,
    )  # fmt: skip
    assert len(kept.recalled_lines) == KEPT_LINES
    assert kept.seconds > 0
    assert kept.seconds_ingest > 0
    assert kept.turns_history == 6
    assert read_samples(tmp_path / "samples.jsonl") == samples


def test_a_failed_batch_is_an_error_with_its_reason_and_the_rest_goes_on(
    conversation: Conversation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    samples = run(SpySystem(fail_on={"Question 1?": RuntimeError("out of memory")}), conversation, tmp_path)
    assert [sample.status for sample in samples] == ["error", "error", "ok", "ok"]
    assert samples[0].prediction is None
    assert "RuntimeError: out of memory" in (samples[0].error or "")
    assert caplog.records[0].exc_info is not None


def test_a_session_that_cannot_be_observed_fails_the_questions_after_it(
    conversation: Conversation, tmp_path: Path
) -> None:
    early = dataclasses.replace(conversation.questions[0], date=datetime(2023, 5, 8))
    broken = make_conversation("anna", [early, *conversation.questions[1:]])
    spy = SpySystem(fail_on={"anna says 1 0": ValueError("no")})
    samples = run(spy, broken, tmp_path)
    assert [sample.status for sample in samples] == ["ok", "error", "error", "error"]
    assert "observe session 1: ValueError: no" in (samples[1].error or "")
    assert [call.index for call in spy.calls if isinstance(call, Session)] == [0, 1]


def test_the_wrong_number_of_answers_is_a_failure(conversation: Conversation, tmp_path: Path) -> None:
    class Forgetful(SpySystem):
        def answer(self, queries):  # type: ignore[no-untyped-def]
            return super().answer(queries)[1:]

    samples = run(Forgetful(), conversation, tmp_path)
    assert {sample.status for sample in samples} == {"error"}
    assert "1 answers to 2 questions" in (samples[0].error or "")


def test_what_the_user_can_put_right_stops_the_run(conversation: Conversation, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="wrong base"):
        run(SpySystem(fail_on={"Question 2?": UserError("wrong base")}), conversation, tmp_path)
    # the batch before it is safe
    assert [sample.index for sample in read_samples(tmp_path / "samples.jsonl")] == [0, 1]


def test_a_stopped_run_continues_and_asks_again_only_what_is_missing_or_failed(
    conversation: Conversation, tmp_path: Path
) -> None:
    run(SpySystem(fail_on={"Question 3?": RuntimeError("late")}), conversation, tmp_path, batch_size=1)
    spy = SpySystem()
    samples = run(spy, conversation, tmp_path, batch_size=1)
    assert [call for call in spy.calls if isinstance(call, tuple)] == [(Query("Question 3?"),)]
    assert {sample.status for sample in samples} == {"ok"}
    assert sorted(sample.index for sample in read_samples(tmp_path / "samples.jsonl")) == [0, 1, 2, 3]
    finished = SpySystem()
    assert run(finished, conversation, tmp_path) == samples
    assert finished.calls == []


def test_progress_counts_every_question_once(conversation: Conversation, tmp_path: Path) -> None:
    for _ in range(2):
        counts: list[int] = []
        counting = Runner(3, len, on_progress=counts.append)
        counting.run(SpySystem(), [conversation], SampleFile(tmp_path, {}))
        assert sum(counts) == 4
