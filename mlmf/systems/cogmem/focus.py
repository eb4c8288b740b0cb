"""The focus of attention: a small window made anew for each input, within a token budget however long the dialogue is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from mlmf.retrieval.bm25 import BM25Index
from mlmf.retrieval.budget import within_budget
from mlmf.systems.cogmem.agents import FocusAgent
from mlmf.systems.cogmem.extract import Ranker
from mlmf.systems.cogmem.prompts import Window, headings, history_line, insight_line, labelled, note_line
from mlmf.systems.cogmem.records import Insight, Notes, TurnRecord

_Item = TypeVar("_Item")
# lines that are tried for the history: far more than its share of a window holds
_CANDIDATES = 64
_COUNTS_KEPT = 65_536


@dataclass(frozen=True, slots=True)
class Shares:
    """How a budget is divided; what a part leaves over goes to the turns in full."""

    insights: float
    notes: float
    history: float
    """Of the first window, in which no turn stands in full yet."""


class FocusOfAttention:
    """Makes the two windows: one of what is known without looking, one with the turns that turn out to be missing."""

    def __init__(
        self, agent: FocusAgent, count_tokens: Callable[[str], int], rank: Ranker, *, budget: int, shares: Shares
    ) -> None:
        """Make windows.

        Args:
            agent: says what is missing.
            count_tokens: of a text.
            rank: which turns match an input; chooses the history that fits.
            budget: the most tokens of a window.
            shares: how they are divided.
        """
        self.agent, self.budget, self.shares = agent, budget, shares
        self._count, self._rank = lru_cache(_COUNTS_KEPT)(count_tokens), rank

    def window(
        self,
        asked: str,
        turns: Sequence[TurnRecord],
        notes: Notes = (),
        insights: Sequence[Insight] = (),
        *,
        room: int | None = None,
    ) -> Window:
        """The window to answer from.

        Args:
            asked: the new input.
            turns: the dialogue so far.
            notes: of the session.
            insights: from long-term memory, best first.
            room: tokens that the model has left for a window, where that is less than the budget.
        """
        budget = self.budget if room is None else min(self.budget, room)
        first = self.first(asked, turns, notes, insights, budget)
        return self.second(first, self.agent.missing(first.text, asked, turns), turns, budget)

    def first(
        self, asked: str, turns: Sequence[TurnRecord], notes: Notes, insights: Sequence[Insight], budget: int
    ) -> Window:
        """Insights, notes, and a line for each turn: half of the lines for the best matches, half for the latest.

        Of the notes those that match come first into what fits, then the latest.
        """
        left = self._after_headings(budget)
        shares = self.shares
        shown = self._fitting(insights, insight_line, left * shares.insights)
        places = dict.fromkeys([*matching(asked, [note.text for note in notes]), *range(len(notes) - 1, -1, -1)])
        kept = self._fitting(list(places), lambda place: note_line(notes[place]), left * shares.notes)
        matches = [turns[place] for place in self._rank(asked, turns)[:_CANDIDATES]]
        best = self._fitting(matches, history_line, left * shares.history / 2)
        others = [turn for turn in turns[-_CANDIDATES:][::-1] if turn not in best]
        latest = self._fitting(others, history_line, left * shares.history / 2)
        history = sorted([*best, *latest], key=_number)
        return Window(tuple(shown), tuple(notes[place] for place in sorted(kept)), tuple(history))

    def second(self, first: Window, missing: Sequence[str], turns: Sequence[TurnRecord], budget: int) -> Window:
        """The first window and exactly the missing turns in full, the first named first, as far as the budget goes.

        A turn in full needs no line of the history any more.
        """
        by_label = {turn.label: turn for turn in turns}
        wanted = [by_label[label] for label in missing]
        lines = [*map(insight_line, first.insights), *map(note_line, first.notes), *map(history_line, first.history)]
        left = self._after_headings(budget) - sum(map(self._cost, lines))
        costs = []
        for turn in wanted:
            spared = self._cost(history_line(turn)) if turn in first.history else 0
            costs.append(max(0, self._cost(labelled(turn)) - spared))
        full = [wanted[place] for place in within_budget(costs, left)]
        history = tuple(turn for turn in first.history if turn not in full)
        return replace(first, history=history, turns=tuple(sorted(full, key=_number)))

    def _after_headings(self, budget: int) -> int:
        return max(0, budget - self._count(headings()))

    def _fitting(self, items: Sequence[_Item], line: Callable[[_Item], str], budget: float) -> list[_Item]:
        return [items[place] for place in within_budget((self._cost(line(item)) for item in items), int(budget))]

    def _cost(self, line: str) -> int:
        return self._count(f"{line}\n")


def bm25_rank(asked: str, turns: Sequence[TurnRecord]) -> list[int]:
    """Turns by BM25 over all that was said in them."""
    return matching(asked, [turn.text for turn in turns])


def matching(asked: str, texts: Sequence[str]) -> list[int]:
    """Positions of the texts that share words with an input, best first."""
    index = BM25Index()
    index.add(texts)
    return [hit.position for hit in index.search([asked], len(texts))[0]]


def _number(turn: TurnRecord) -> int:
    return turn.number
