"""Replies as data: what is read, what is repaired, what is refused."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from mlmf.llm.chat import Message
from mlmf.llm.structured import StructuredOutputError, ask_for, parse
from tests.llm.doubles import SpokenFor

ASKED = [Message("system", "Reply in JSON."), Message("user", "Keep or drop?")]


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")
    action: Literal["keep", "drop"]
    note: str = ""


GOOD = '{"action": "keep", "note": "a {brace} in it"}'


@pytest.mark.parametrize(
    "reply",
    [GOOD, f"Sure, here it is: {GOOD} Anything else?", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n``` I hope so."],
)
def test_an_object_is_found_in_what_surrounds_it(reply: str) -> None:
    assert parse(reply, Decision) == Decision(action="keep", note="a {brace} in it")


@pytest.mark.parametrize(
    "reply",
    ["", "keep", "}{", '{"action": "keep"', '{"action": "burn"}', '{"action": "keep"} or {"action": "drop"}', "[]"],
)
def test_no_object_a_broken_one_or_two_are_refused(reply: str) -> None:
    with pytest.raises(ValidationError):
        parse(reply, Decision)


@given(st.builds(Decision, action=st.sampled_from(["keep", "drop"]), note=st.text()), st.sampled_from(["", "Here: "]))
def test_whatever_a_model_of_data_writes_is_read_back(decision: Decision, before: str) -> None:
    assert parse(before + decision.model_dump_json(), Decision) == decision


def test_a_bad_reply_is_repaired_once_by_showing_the_error() -> None:
    replies = iter(['{"action": "burn"}', '{"action": "drop"}'])
    model = SpokenFor(lambda text: next(replies))
    assert ask_for(model, ASKED, Decision, 20) == Decision(action="drop")
    first, second = model.asked
    assert first == ASKED
    assert second[:3] == [*ASKED, Message("assistant", '{"action": "burn"}')]
    assert "action: Input should be 'keep' or 'drop'" in second[3].content


def test_two_bad_replies_are_an_error_that_shows_the_last() -> None:
    model = SpokenFor(lambda text: "I cannot.")
    with pytest.raises(StructuredOutputError, match=r"spoken-for wrote no valid Decision, twice: .*'I cannot\.'"):
        ask_for(model, ASKED, Decision, 20)
    assert len(model.asked) == 2
