"""The agents by rules: no language model. Notes are the statements that carry most; what is missing is what matches best."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mlmf.memory.entities import extract_by_rules
from mlmf.systems.cogmem.agents import FocusAgent, MemoryAgent
from mlmf.systems.cogmem.records import Insight, Note, NoteKind, Notes, NoteUpdate, Said, TurnRecord, Verdict
from mlmf.systems.english import is_question, names_a_time, split_sentences

Ranker = Callable[[str, Sequence[TurnRecord]], list[int]]
"""Positions of the turns that match an input, best first; one that cannot match is left out."""

_WORD = re.compile(r"[\w'-]+")
_ASIDE = re.compile(
    r"(?:wow|hey|hi|hello|thanks?|thank you|yeah|yes|no|oh|ok(?:ay)?|sure|great|awesome|cool|nice|sounds|congrat\w*"
    r"|glad|good (?:luck|job|morning|evening)|that's (?:great|awesome|cool|nice|so|really))\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:I|I'\w+|my|we|we'\w+|our|me)\b")
_EVENT = re.compile(
    r"\b(?:went|got|bought|moved|started|joined|met|made|took|found|visited|finished|won|lost|married|born|adopted"
    r"|painted|wrote|read|played|love[sd]?|like[sd]?|prefers?|hates?|works?|lives?|named|called|pass(?:ed)?"
    r"|fail(?:ed)?|correct|wrong|true|false)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
_INFERENCE = re.compile(
    r"\b(?:so|therefore|thus|hence|because|means|must|cannot|can't|excluded?|rules? out|only)\b", re.IGNORECASE
)
_GOAL = re.compile(r"\b(?:want(?:s|ed)? to|hope|goal|dream|aim|need to|must|have to|trying to)\b", re.IGNORECASE)
_PLAN = re.compile(r"\b(?:will|'ll|going to|gonna|plan(?:s|ning)?|next step|let's|let us)\b", re.IGNORECASE)
_ASKING = re.compile(
    r"^(?:(?:can|could|would|do|does|did|is|are|was|were|has|have|had|will|should|please|tell|me|you|know|what|when"
    r"|where|which|who|whom|whose|why|how|many|much|long|often|kind|of|the|a|an)\b[\s,]*)+",
    re.IGNORECASE,
)
_SUMMARY_WORDS = 16
_LEAST_WORTH = 2


class RuleMemoryAgent(MemoryAgent):
    """Keeps statements word for word, and so never makes anything up."""

    def __init__(self, *, notes: int, merge_similarity: float) -> None:
        """Keep by rules.

        Args:
            notes: the most notes of a session.
            merge_similarity: cosine from which two insights are taken to be about the same.
        """
        self._notes, self._merge_similarity = notes, merge_similarity

    def update(self, notes: Notes, turn: TurnRecord) -> NoteUpdate:
        """Add the turn's statements; of too many notes those that carry least go, the oldest first."""
        known = {note.text for note in notes}
        added = [
            Note(kind=_kind(text), text=said.header + " " + text, turn=turn.label) for said, text in _statements(turn)
        ]
        kept = [*notes, *(note for note in added if note.text not in known)]
        # by worth, then by age; what stays stands in the order of time
        ranked = sorted(range(len(kept)), key=lambda place: (-worth(kept[place].text), -place))[: self._notes]
        return NoteUpdate(notes=tuple(kept[place] for place in sorted(ranked)), summary=_summary(turn))

    def describe(self, asked: str) -> str:
        """What is asked, as the beginning of a statement: without the words that make it a question."""
        return _ASKING.sub("", asked.strip()).rstrip("?! ") or asked

    def distil(self, turns: Sequence[TurnRecord]) -> list[tuple[str, tuple[str, ...]]]:
        """Every statement that carries something, with its turn."""
        return [(f"{said.header} {text}", (turn.label,)) for turn in turns for said, text in _statements(turn)]

    def judge(self, text: str, similar: Sequence[tuple[Insight, float]]) -> Verdict:
        """Leave out what is stored word for word or says no more; merge what says the same at greater length."""
        words = _words(text)
        for insight, cosine in similar:
            if words <= _words(insight.text):
                return Verdict(action="exclude")
            if cosine >= self._merge_similarity and _words(insight.text) <= words:
                return Verdict(action="merge", text=text, merge_with=insight.id)
        return Verdict(action="add", text=text)


class RuleFocusAgent(FocusAgent):
    """Asks for the latest exchange and for those that match the input best."""

    def __init__(self, rank: Ranker, *, turns: int) -> None:
        """Judge by search.

        Args:
            rank: the search.
            turns: the most turns that are asked for.
        """
        self._rank, self._turns = rank, turns

    def missing(self, window: str, asked: str, turns: Sequence[TurnRecord]) -> list[str]:
        """Labels of those turns; the latest exchange comes first, since an input often answers it."""
        latest = [turn for turn in turns[-1:] if turn.reply]
        matching = [turns[place] for place in self._rank(asked, turns)]
        labels = dict.fromkeys(turn.label for turn in [*latest, *matching])
        return list(labels)[: self._turns]


def worth(text: str) -> int:
    """How much a sentence carries: names and things, numbers, times, what somebody did, and why.

    >>> worth("Thanks a lot!"), worth("My sister Anna moved to Oslo in May 2021.")
    (0, 4)
    """
    if is_question(text) or len(_WORD.findall(text)) < 4:
        return 0
    signs = (_FIRST_PERSON, _EVENT, _NUMBER, _INFERENCE)
    points = sum(1 for sign in signs if sign.search(text)) + names_a_time(text) + min(2, len(extract_by_rules(text)))
    return points - (1 if _ASIDE.match(text) else 0)


def _statements(turn: TurnRecord) -> list[tuple[Said, str]]:
    """The sentences of a turn that carry something."""
    sentences = [(said, sentence) for said in turn.said for sentence in split_sentences(said.text)]
    return [(said, sentence) for said, sentence in sentences if worth(sentence) >= _LEAST_WORTH]


def _kind(text: str) -> NoteKind:
    if _GOAL.search(text):
        return "goal"
    return "plan" if _PLAN.search(text) else "conclusion"


def _summary(turn: TurnRecord) -> str:
    """For each thing said its sentence that carries most, cut to some words."""
    lines = []
    for said in turn.said:
        sentences = split_sentences(said.text)
        best = max(sentences, key=worth, default="")
        words = best.split()
        shown = " ".join(words[:_SUMMARY_WORDS]) + (" ..." if len(words) > _SUMMARY_WORDS else "")
        lines.append(f"{said.header} {shown}".strip())
    return " / ".join(lines)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
