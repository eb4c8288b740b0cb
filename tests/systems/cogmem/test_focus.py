"""The window is small however long the dialogue, shows what matches, and adds exactly the turns that are asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.systems.cogmem.agents import FocusAgent
from mlmf.systems.cogmem.extract import RuleFocusAgent
from mlmf.systems.cogmem.focus import FocusOfAttention, Shares, bm25_rank
from mlmf.systems.cogmem.prompts import Window, labelled
from mlmf.systems.cogmem.records import Insight, Note, TurnRecord, said_in_exchange
from tests.systems.cogmem.doubles import count_words

SHARES = Shares(insights=0.2, notes=0.1, history=0.3)


class Names(FocusAgent):
    def __init__(self, *labels: str) -> None:
        self.labels = list(labels)
        self.windows: list[str] = []

    def missing(self, window: str, asked: str, turns: Sequence[TurnRecord]) -> list[str]:
        self.windows.append(window)
        return self.labels


def turns(*texts: str) -> list[TurnRecord]:
    return [
        TurnRecord(
            key=str(n), parent=None, number=n, label=f"T{n}", said=said_in_exchange(text, "ok"),
            reply="ok", summary=" ".join(text.split()[:3]),
        )
        for n, text in enumerate(texts, start=1)
    ]  # fmt: skip


def focus(agent: FocusAgent, budget: int = 200) -> FocusOfAttention:
    return FocusOfAttention(agent, count_words, bm25_rank, budget=budget, shares=SHARES)


def labels(found: Sequence[TurnRecord]) -> list[str]:
    return [turn.label for turn in found]


def test_the_second_window_adds_exactly_the_turns_that_were_named() -> None:
    said = turns("a cat in the house", "a dog in the house", "the violin is new")
    agent = Names("T3", "T1")
    window = focus(agent).window("What is new?", said)
    assert agent.windows == [Window(history=tuple(said)).text]
    assert labels(window.turns) == ["T1", "T3"]
    assert labels(window.history) == ["T2"]
    assert labelled(said[0]) in window.text and labelled(said[1]) not in window.text
    assert focus(Names()).window("What is new?", said) == Window(history=tuple(said))


def test_history_that_does_not_fit_keeps_the_best_matches_and_the_latest() -> None:
    said = turns(*(f"number {n} of many words in a row" for n in range(200)))
    said[40] = said[40].model_copy(update={"said": said_in_exchange("we saw a zebra", "ok"), "summary": "saw a zebra"})
    window = focus(Names(), budget=120).first("where was the zebra", said, (), (), 120)
    assert "T41" in labels(window.history)
    assert labels(window.history)[-1] == "T200"
    assert labels(window.history) == sorted(labels(window.history), key=lambda label: int(label[1:]))


def test_notes_that_match_come_before_the_latest() -> None:
    notes = tuple(Note(kind="plan", text=f"{word} one two three") for word in ["cat", "dog", "rain", "violin"])
    window = focus(Names(), budget=100).first("feed the cat", [], notes, (), 100)
    assert [note.text.split()[0] for note in window.notes] == ["cat"]


def test_by_rules_the_latest_exchange_and_the_best_matches_are_missing() -> None:
    said = turns("a cat", "a dog", "cat and cat food", "rain")
    assert RuleFocusAgent(bm25_rank, turns=2).missing("", "the cat", said) == ["T4", "T3"]
    assert RuleFocusAgent(bm25_rank, turns=9).missing("", "the cat", said) == ["T4", "T3", "T1"]
    heard = [turn.model_copy(update={"reply": ""}) for turn in said]
    assert RuleFocusAgent(bm25_rank, turns=2).missing("", "the cat", heard) == ["T3", "T1"]
    assert RuleFocusAgent(bm25_rank, turns=2).missing("", "the cat", []) == []


text = st.lists(st.sampled_from(["cat", "dog", "rain", "and", "the", "so"]), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(text, max_size=12), insights=st.lists(text, max_size=5), notes=st.lists(text, max_size=5),
    named=st.sets(st.integers(1, 12)), budget=st.integers(0, 120), room=st.none() | st.integers(0, 120),
)  # fmt: skip
def test_no_window_exceeds_the_budget(
    said: list[str], insights: list[str], notes: list[str], named: set[int], budget: int, room: int | None
) -> None:
    dialogue = turns(*said)
    agent = Names(*(f"T{n}" for n in named if n <= len(said)))
    window = focus(agent, budget).window(
        "cat", dialogue, tuple(Note(kind="goal", text=note) for note in notes),
        [Insight(id=str(n), text=insight) for n, insight in enumerate(insights)], room=room,
    )  # fmt: skip
    limit = budget if room is None else min(budget, room)
    for shown in (window.text, agent.windows[0]):
        assert count_words(shown) <= limit
    assert set(labels(window.turns)) <= set(agent.labels)


def test_a_dialogue_ten_times_as_long_has_no_longer_window() -> None:
    said = turns(*(f"{n} is a number and it rains" for n in range(400)))
    rules = RuleFocusAgent(bm25_rank, turns=20)
    short, long = (count_words(focus(rules).window("when does it rain", said[:n]).text) for n in (40, 400))
    assert long == pytest.approx(short, rel=0.1)
