"""CogMem as a system of the harness: it remembers as in a chat, and the answer model of all text systems answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlmf.retrieval.base import Hit, Index
from mlmf.retrieval.budget import within_budget
from mlmf.retrieval.neighbours import with_neighbours
from mlmf.systems.baselines import latest_lines
from mlmf.systems.cogmem.focus import FocusOfAttention, matching
from mlmf.systems.cogmem.memory import CogMem
from mlmf.systems.cogmem.records import Insight, Said, TurnRecord, open_notes
from mlmf.systems.text import Answering, Line, TextSystem, searchable
from mlmf.types import Query, Session, format_date

_USER = "conversation"


class TurnSearch:
    """The index of the conversation's turns, each added once; it ranks for the agents that ask for turns."""

    def __init__(self, new_index: Callable[[], Index]) -> None:
        """Start empty."""
        self._new_index, self._index = new_index, new_index()
        self._last: tuple[str, int, list[Hit]] = ("", -1, [])

    def reset(self) -> None:
        """Forget every turn."""
        self._index, self._last = self._new_index(), ("", -1, [])

    def add(self, texts: Sequence[str]) -> None:
        """Append turns."""
        self._index.add(texts)

    def rank(self, asked: str, turns: Sequence[TurnRecord]) -> list[int]:
        """Positions of the turns that match, best first; ``turns`` are those that were added."""
        if self._last[:2] != (asked, len(turns)):
            self._last = (asked, len(turns), self._index.search([asked], len(turns))[0])
        return [hit.position for hit in self._last[2]]


class CogMemSystem(TextSystem):
    """One dialogue of turns; each session of the data ends with the review of long-term memory; a question is an input.

    What the focus of attention chose is shown as dated lines within the budget of all text systems: turns word for word,
    and insights and notes whose turns are not shown.
    """

    name = "cogmem"

    def __init__(self, answering: Answering, memory: CogMem, search: TurnSearch, *, neighbours: int = 0) -> None:
        """Start with no conversation.

        Args:
            answering: the answer model and the budget.
            memory: CogMem, for this system alone.
            search: the index that the memory's focus of attention searches.
            neighbours: turns on either side of each named one that are shown too, where the budget allows.
        """
        super().__init__(answering)
        self.memory, self.neighbours, self._search = memory, neighbours, search
        self._session = memory.sessions.begin(_USER)
        self._lines: dict[str, Line] = {}

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.memory.forget(_USER)
        self._search.reset()
        self._session = self.memory.sessions.begin(_USER)
        self._lines = {}

    def observe(self, session: Session) -> None:
        """Add the turns one by one, and end with the review."""
        known = len(self.lines)
        super().observe(session)
        self._search.add([searchable(turn) for turn in session.turns])
        for line, turn in zip(self.lines[known:], session.turns, strict=True):
            said = Said(header=f"[{format_date(session.date)}] {turn.speaker}:", text=turn.content)
            self._session, _ = self.memory.add(_USER, self._session, [said], label=turn.id)
            self._lines[turn.id] = line
        if self.memory.focus is not None:
            self.memory.review(_USER, self.memory.read(_USER, self._session.head)[known:])

    def recall(self, queries: Sequence[Query], room: int) -> list[list[Line]]:
        """What the focus of attention chooses for each question; the baseline is the latest lines."""
        focus = self.memory.focus
        budget = min(self.answering.budget, room)
        if focus is None:
            return [latest_lines(self.lines, budget)] * len(queries)
        turns = self.memory.read(_USER, self._session.head)
        insights = self.memory.insights_for(_USER, [query.text for query in queries])
        return [
            self._chosen(focus, query.text, turns, found, budget)
            for query, found in zip(queries, insights, strict=True)
        ]

    def _chosen(
        self,
        focus: FocusOfAttention,
        asked: str,
        turns: Sequence[TurnRecord],
        insights: Sequence[Insight],
        budget: int,
    ) -> list[Line]:
        """Turns within what insights and notes leave; then those, where they add something; then more turns and neighbours."""
        notes = open_notes(turns)
        first = focus.first(asked, turns, notes, insights, focus.budget)
        named = [self._lines[label] for label in focus.agent.missing(first.text, asked, turns)]
        shares = focus.shares
        shown = _within(named, int(budget * (1 - shares.insights - shares.notes)))
        seen = {turn_id for line in shown for turn_id in line.turn_ids}
        learnt = [self._statement(insight.text, insight.sources[:1]) for insight in insights]
        matched = [notes[place] for place in matching(asked, [note.text for note in notes])]
        noted = [self._statement(note.text, (note.turn,)) for note in matched]
        for lines, share in ((learnt, shares.insights), (noted, shares.notes)):
            added = _within([line for line in lines if _adds(line, seen)], int(budget * share))
            shown += added
            seen |= {turn_id for line in added for turn_id in line.turn_ids}
        around = with_neighbours(
            [line.position for line in named], [line.session for line in self.lines], self.neighbours
        )
        more = [line for line in map(self.lines.__getitem__, around) if _adds(line, seen)]
        return self.fitting([*shown, *more], budget)

    def _statement(self, text: str, sources: Sequence[str]) -> Line:
        """A statement as a line: it stands where its turn does, and counts as a look at that turn."""
        text = " ".join(text.split())
        source = next((self._lines[label] for label in sources), None)
        tokens = self.cost(text)
        if source is None:
            return Line(-1, -1, (), text, tokens)
        return Line(source.position, source.session, source.turn_ids, text, tokens)


def _adds(line: Line, seen: set[str]) -> bool:
    """Whether a line says something of a turn that is not shown, or of none."""
    return not line.turn_ids or not seen.issuperset(line.turn_ids)


def _within(lines: Sequence[Line], budget: int) -> list[Line]:
    return [lines[place] for place in within_budget((line.tokens for line in lines), budget)]
