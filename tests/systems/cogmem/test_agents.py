"""What a model says becomes notes, verdicts and labels; what it fails to say the rules do, and that is counted."""

from __future__ import annotations

import json

import pytest
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.llm.local_chat import LocalChatModel
from mlmf.systems.cogmem.agents import ModelFocusAgent, ModelMemoryAgent
from mlmf.systems.cogmem.extract import RuleFocusAgent, RuleMemoryAgent
from mlmf.systems.cogmem.focus import bm25_rank
from mlmf.systems.cogmem.records import Insight, Note, TurnRecord, Verdict, said_in_exchange
from tests.systems.cogmem.doubles import ScriptedModel

RULES = RuleMemoryAgent(notes=9, merge_similarity=0.9)
FACT = "My cat Miso lives in Oslo."


def turn(number: int, user: str, reply: str = "ok") -> TurnRecord:
    said = said_in_exchange(user, reply)
    return TurnRecord(key=str(number), parent=None, number=number, label=f"T{number}", said=said, reply=reply)


def agent(*replies: object, window: int = 4_000) -> ModelMemoryAgent:
    left = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    return ModelMemoryAgent(ScriptedModel(lambda said: left.pop(0), window), RULES, max_new_tokens=20)


def test_notes_are_rewritten_and_one_that_stays_keeps_its_turn() -> None:
    old = Note(kind="conclusion", text="The cat is called Miso", turn="T1")
    gone = Note(kind="goal", text="find a name", turn="T1")
    reply = {
        "conclusions": [old.text],
        "plans": [" move to Oslo ", "move to Oslo", "", "..."],
        "summary": "about\nOslo",
    }
    update = agent(reply).update((old, gone), turn(2, "We move to Oslo"))
    assert update.notes == (old, Note(kind="plan", text="move to Oslo", turn="T2"))
    assert update.summary == "about Oslo"


def test_the_model_reads_the_notes_and_the_turn() -> None:
    writer = agent({"summary": "s"})
    writer.update((Note(kind="goal", text="find a name"),), turn(2, FACT))
    assert isinstance(writer.model, ScriptedModel)
    assert "goals: ['find a name']" in writer.model.last and f"User: {FACT}" in writer.model.last


def test_invalid_json_is_repaired_once_and_then_the_rules_take_over() -> None:
    repaired = agent("The notes are fine.", {"conclusions": ["a"], "summary": "s"})
    assert [note.text for note in repaired.update((), turn(1, FACT)).notes] == ["a"]
    assert repaired.failures == 0
    failing = agent("no", '{"summary": 3', "no", "never", "no", "no")
    assert failing.update((), turn(1, FACT)) == RULES.update((), turn(1, FACT))
    assert failing.distil([turn(1, FACT)]) == RULES.distil([turn(1, FACT)])
    similar = [(Insight(id="1", text=FACT), 0.99)]
    assert failing.judge(FACT, similar) == Verdict(action="exclude")
    assert failing.failures == 3


def test_insights_name_only_turns_that_there_are() -> None:
    found = {"insights": [{"text": " Miso lives in Oslo ", "turns": ["T1", "T9"]}, {"text": " "}]}
    assert agent(found).distil([turn(1, FACT)]) == [("Miso lives in Oslo", ("T1",))]


def test_a_session_that_is_too_long_for_the_model_is_reviewed_in_parts() -> None:
    said = [turn(number, "word " * 50) for number in range(1, 7)]
    writer = agent(*[{"insights": [{"text": f"part {n}"}]} for n in range(9)], window=420)
    found = writer.distil(said)
    assert isinstance(writer.model, ScriptedModel)
    assert 2 <= len(found) == len(writer.model.read) <= 6
    read = "\n".join(message.content for conversation in writer.model.read for message in conversation)
    assert all(f"[T{number}]" in read for number in range(1, 7))


def test_a_prompt_that_is_too_long_for_the_model_is_left_to_the_rules() -> None:
    short = agent(window=150)
    long = turn(1, f"{FACT} " * 40)
    assert short.update((), long) == RULES.update((), long)
    assert short.distil([long]) == RULES.distil([long])
    assert short.describe("Where is Miso? " * 90) == RULES.describe("Where is Miso? " * 90)
    assert short.failures == 3
    assert isinstance(short.model, ScriptedModel) and short.model.read == []


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ({"action": "exclude"}, Verdict(action="exclude", text="new")),
        ({"action": "merge", "number": 2, "text": "both"}, Verdict(action="merge", text="both", merge_with="b")),
        ({"action": "add", "text": ""}, Verdict(action="add", text="new")),
        (
            {"action": "merge", "number": 7, "text": "both"},
            Verdict(action="add", text="new"),
        ),  # there is no 7: the rules
    ],
)
def test_a_verdict_is_about_a_stored_insight(reply: object, verdict: Verdict) -> None:
    similar = [(Insight(id="a", text="one"), 0.5), (Insight(id="b", text="two"), 0.4)]
    assert agent(reply).judge("new", similar) == verdict
    assert agent().judge("new", []) == Verdict(action="add", text="new")  # nothing to ask about


def test_the_reasoning_agent_names_missing_turns() -> None:
    rules = RuleFocusAgent(bm25_rank, turns=3)
    said = [turn(1, "a cat"), turn(2, "a dog")]

    def missing(*replies: str) -> list[str]:
        left = list(replies)
        model = ScriptedModel(lambda text: left.pop(0))
        return ModelFocusAgent(model, rules, max_new_tokens=9).missing("window", "the cat", said)

    assert missing('{"enough": true, "missing": ["T1"]}') == []
    assert missing('{"enough": false, "missing": ["T2", "T7", "T2"]}') == ["T2"]
    assert missing("no", "no") == rules.missing("", "the cat", said)


def test_with_a_model_that_writes_no_json_at_all_the_system_still_keeps_notes(
    tiny_lm: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    writer = ModelMemoryAgent(LocalChatModel(*tiny_lm, name="tiny"), RULES, max_new_tokens=8)
    assert writer.update((), turn(1, FACT)) == RULES.update((), turn(1, FACT))
    assert writer.failures == 1
    assert writer.describe("Where is Miso?")
