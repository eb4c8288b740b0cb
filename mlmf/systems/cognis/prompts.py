"""What the language model behind ingestion is asked. Everything is numbered: a small model cannot copy a long id."""

from __future__ import annotations

from collections.abc import Sequence

from mlmf.llm.chat import Message
from mlmf.systems.cognis.records import Candidate, Memory, Similar

_EXTRACT = """You keep the long-term memory of a conversation. Read the new turns and write down what is worth knowing in \
a year: who did, has, likes, plans or said what, and when.
Each fact is one sentence that can be understood alone: with names in place of "I" and "she", and with dates in place of \
"yesterday". Leave out greetings, questions, and what is known already.
Reply with JSON alone: {"facts": [{"text": "...", "turns": [1]}]}, where turns are the numbers of the turns that the \
fact comes from. Without any fact: {"facts": []}."""

_DECIDE = """You keep the long-term memory of a conversation free of repetition and of what is out of date. Compare a new \
fact with similar facts that are known, and choose one action:
ADD: it says something that none of them says.
UPDATE: it is the new state of one of them, which is then kept as history; give its number.
DELETE: it only says that one of them is wrong or is to be forgotten; give its number.
NONE: one of them says it already.
Reply with JSON alone: {"action": "UPDATE", "number": 2}; number is null for ADD and NONE."""


def extraction_prompt(messages: Sequence[Memory], known: Sequence[Memory]) -> list[Message]:
    """Ask for the facts of a session's turns, numbered from 1, given facts that are known."""
    facts = "\n".join(fact.line for fact in known) or "(nothing)"
    turns = "\n".join(f"{number}. {message.line}" for number, message in enumerate(messages, start=1))
    return [Message("system", _EXTRACT), Message("user", f"Known already:\n{facts}\n\nNew turns:\n{turns}")]


def decision_prompt(candidate: Candidate, similar: Sequence[Similar]) -> list[Message]:
    """Ask what becomes of a fact beside similar ones, numbered from 1."""
    facts = "\n".join(f"{number}. {near.memory.line}" for number, near in enumerate(similar, start=1))
    return [Message("system", _DECIDE), Message("user", f"Known:\n{facts}\n\nNew fact:\n{candidate.line}")]
