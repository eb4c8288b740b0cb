"""The controls: a fixed answer, and the evidence handed over."""

from __future__ import annotations

import pytest

from mlmf.abstention import ABSTENTION
from mlmf.errors import UserError
from mlmf.systems.base import MemorySystem, PrivilegedControl
from mlmf.systems.controls import OracleEvidence, always_abstain, most_frequent
from mlmf.systems.prompts import context_prompt, question_prompt
from mlmf.systems.text import Answering
from mlmf.types import Answer, Query, Question
from tests.systems.doubles import WordModel, session


def question(index: int, answer: str | None) -> Question:
    return Question("anna", index, f"Q{index}?", answer, is_trap=answer is None)


def test_always_abstain_refuses() -> None:
    assert always_abstain().answer([Query("Who?"), Query("What?")]) == [Answer(ABSTENTION, abstained=True)] * 2


def test_most_frequent_says_the_most_frequent_answer_and_traps_have_none() -> None:
    questions = [question(i, a) for i, a in enumerate(["dog", "cat", None, None, None, "cat", "ant", "ant"])]
    for order in (questions, questions[::-1]):
        assert most_frequent(order).answer([Query("Who?")])[0].text == "ant"


def test_most_frequent_without_answers_says_what_to_give() -> None:
    with pytest.raises(UserError, match="give another --training_file"):
        most_frequent([question(0, None)])


def test_the_oracle_shows_the_evidence_in_the_order_of_time_within_the_budget() -> None:
    model = WordModel()
    oracle = OracleEvidence(Answering(model, 8, 16))  # two lines of 8 words
    for index in range(3):
        oracle.observe(session(index))
    queries = [Query("What?"), Query("Who?"), Query("When?")]
    evidence = [("S2:1", "S0:0"), (), ("S0:0", "S0:1", "S1:0", "unknown")]
    answers = oracle.answer_with_gold_evidence(queries, evidence)
    lines = ["[8 May 2023] Anna: word0x0 and some more", "[10 May 2023] Anna: word2x1 and some more"]
    assert model.prompts[0] == context_prompt(lines) + question_prompt(queries[0])
    assert [answer.recalled for answer in answers] == [("S0:0", "S2:1"), (), ("S0:0", "S0:1")]


def test_the_oracle_is_no_memory_system_and_no_memory_system_has_its_channel() -> None:
    assert not issubclass(OracleEvidence, MemorySystem)
    assert issubclass(OracleEvidence, PrivilegedControl)
    assert not hasattr(MemorySystem, "answer_with_gold_evidence")
