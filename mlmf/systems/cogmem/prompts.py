"""The prompts of CogMem's agents, and the window as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlmf.systems.cogmem.records import Insight, Note, Notes, TurnRecord

MEMORY_AGENT = "You keep the memory of an assistant. You reply with what is asked for and nothing else."
REASONING_AGENT = (
    "You are an assistant with a memory. Before the user's message you see what you remember of this conversation and "
    "of earlier ones: rely on it, and do not claim to remember anything else."
)
_SECTIONS = {
    "insights": "What earlier sessions taught:",
    "notes": "Notes of this session:",
    "history": "What was said before, a line for each turn:",
    "turns": "Turns in full:",
}


@dataclass(frozen=True, slots=True)
class Window:
    """What the reasoning agent sees beside the new input."""

    insights: tuple[Insight, ...] = ()
    notes: Notes = ()
    history: tuple[TurnRecord, ...] = ()
    """Turns shown by their summaries."""
    turns: tuple[TurnRecord, ...] = field(default=())
    """Turns shown in full."""

    @property
    def text(self) -> str:
        """All of it, a heading before each part that is not empty."""
        parts = {
            "insights": [insight_line(insight) for insight in self.insights],
            "notes": [note_line(note) for note in self.notes],
            "history": [history_line(turn) for turn in self.history],
            "turns": [labelled(turn) for turn in self.turns],
        }
        return "\n\n".join("\n".join([_SECTIONS[name], *lines]) for name, lines in parts.items() if lines)


def headings() -> str:
    """Everything in a window that is not memory, for counting its tokens."""
    return "\n\n".join(f"{heading}\n" for heading in _SECTIONS.values())


def insight_line(insight: Insight) -> str:
    """An insight as the window shows it."""
    return f"- {insight.text}"


def note_line(note: Note) -> str:
    """A note as the window shows it."""
    return f"- {note.kind}: {note.text}"


def history_line(turn: TurnRecord) -> str:
    """A turn by its summary; one that the memory agent has not read yet by its first line."""
    return f"[{turn.label}] {turn.summary or turn.text.splitlines()[0]}"


def labelled(turn: TurnRecord) -> str:
    """A turn in full."""
    return f"[{turn.label}] {turn.text}"


def update_notes(notes: Notes, turn: TurnRecord) -> str:
    """Ask for the notes after a turn."""
    kept = {kind: [note.text for note in notes if note.kind == kind] for kind in ("conclusion", "goal", "plan")}
    return (
        "The notes of a conversation so far:\n"
        f"conclusions: {kept['conclusion']}\ngoals: {kept['goal']}\nplans: {kept['plan']}\n\n"
        f"What was just said:\n{turn.text}\n\n"
        "Bring the notes up to date. Conclusions are facts and results that stand; goals are what is to be reached; "
        "plans are the next steps. Keep names, numbers and dates exactly. Drop what is settled, wrong or repeated, and "
        "keep each note to one short sentence. Also sum up what was just said in one sentence.\n"
        'Reply as JSON: {"conclusions": [...], "goals": [...], "plans": [...], "summary": "..."}'
    )


def describe(asked: str) -> str:
    """Ask for a description to search long-term memory with."""
    return (
        f"A session opens with this message:\n{asked}\n\n"
        "Write one sentence that says what the session is about and what knowledge would help in it: the kind of task, "
        "the people and things named, the dates. It is used to search a memory of earlier sessions."
    )


def review(turns: Sequence[TurnRecord]) -> str:
    """Ask what of a session is worth keeping."""
    dialogue = "\n".join(labelled(turn) for turn in turns)
    return (
        f"A session has ended. Its turns, each after its id:\n{dialogue}\n\n"
        "List what will still be worth knowing in other sessions: lasting facts about people and things, preferences, "
        "dates, and ways of working that led to success or failure. Each must make sense alone, in one sentence, with "
        "names in place of pronouns. Leave out small talk. Name the ids of the turns that each one rests on.\n"
        'Reply as JSON: {"insights": [{"text": "...", "turns": ["..."]}]}'
    )


def judge(text: str, similar: Sequence[str]) -> str:
    """Ask what becomes of an insight beside those that are stored."""
    stored = "\n".join(f"{number}. {known}" for number, known in enumerate(similar, start=1))
    return (
        f"Stored insights:\n{stored}\n\nA new one:\n{text}\n\n"
        "Choose an action. exclude: a stored one already says it. merge: it completes or corrects a stored one; give "
        "that one's number and one sentence that says what is true now. add: it is something else; give its text.\n"
        'Reply as JSON: {"action": "add" | "merge" | "exclude", "number": 1, "text": "..."}'
    )


def focus(window: str, asked: str) -> str:
    """Ask whether a window is enough."""
    return (
        f"{window}\n\nThe user now says:\n{asked}\n\n"
        "Is this enough to answer well? If not, name the turns that must be read in full, by the ids in brackets, the "
        "most important first. Do not answer the user yet.\n"
        'Reply as JSON: {"enough": true | false, "missing": ["..."]}'
    )


def reply(window: str, asked: str) -> str:
    """The message that the reasoning agent answers."""
    return f"{window}\n\nThe user now says:\n{asked}" if window else asked
