"""Seeded dialogues whose answers are known by construction: facts told, some updated later, asked at the end.

People and things are invented and every value is drawn at random, so that nothing but the memory of a conversation can
answer a question about it. A session is a few turns between the same two speakers: turns that tell something, among
chatter. What was told may be told anew in a later session with another value; the newest one counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from mlmf.errors import UserError
from mlmf.types import Conversation, Question, Session, Turn

FACT, UPDATE, NEVER_TOLD = 1, 2, 3
"""Categories of questions: told once; told several times, the newest counts; never told."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that can be told about a subject: ``tell`` has places for subject and value, ``ask`` for the subject."""

    tell: str
    ask: str
    values: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SPEAKERS = _words("Orin Tessa Hale Maren Idris Petra Soren Wilma")
PEOPLE = _words(
    "Adra Belmo Corvin Dalia Edrik Fenna Gorim Hessa Ilvar Jorun Kelda Lorcan Mirel Nadim Oswin Pelka Quill Rasmi "
    "Sorrel Tavin Ulma Varek Wendra Xanti Yorick Zelda Anwen Brivo Cassia Dorim Elowen Farrow"
)
THINGS = _words(
    "lantern kettle ladder trunk mirror basket carpet drum globe hammer ribbon saddle vase whistle anchor bell"
)
PERSONAL = (
    Attribute("{} lives in {}", "Where does {} live?", _words(
        "Avalto Brenwick Calder Dunmore Estria Falken Gravia Holmar Istra Jasper Korvath Lindel Morrow Nivara Ostvik Pellan"
    )),
    Attribute("{} works as a {}", "What does {} work as?", _words(
        "baker carpenter dancer doctor farmer gardener judge lawyer miner nurse painter pilot sailor tailor teacher writer"
    )),
    Attribute("{} keeps a {}", "Which animal does {} keep?", _words(
        "beaver canary cat donkey falcon ferret goat hamster hedgehog horse lizard otter parrot rabbit spaniel turtle"
    )),
    Attribute("{} loves to eat {}", "What does {} love to eat?", _words(
        "apples beans bread cherries chocolate dumplings figs honey lentils mushrooms noodles olives pancakes rice soup trout"
    )),
    Attribute("{} plays the {}", "Which instrument does {} play?", _words(
        "banjo bassoon cello clarinet fiddle flute guitar harp lute oboe organ piano trombone trumpet tuba viola"
    )),
    Attribute("{} wears only {}", "Which colour does {} wear?", _words(
        "amber beige black blue brown crimson green grey indigo orange pink purple red turquoise white yellow"
    )),
)  # fmt: skip
ABOUT_THINGS = (
    Attribute("the {} stands in the {}", "Where does the {} stand?", _words(
        "attic barn bathroom bedroom cabin cellar chapel corridor garage garden kitchen library office parlour porch shed"
    )),
    Attribute("the {} is made of {}", "What is the {} made of?", _words(
        "bamboo brass bronze cedar clay copper glass gold iron ivory leather marble oak paper silver wool"
    )),
)  # fmt: skip
CHATTER = (
    "what a lovely day it was", "it rained all week here", "did you sleep well", "my tea went cold again",
    "the bus was late once more", "you sound tired today", "that made me laugh", "I could not agree more",
    "the news was dull as usual", "let us meet for a walk soon", "the shop was closed again", "good to hear from you",
    "I saw {} at the market", "{} sends you greetings", "have you heard from {}", "{} was in a good mood",
    "I tripped over the {}", "somebody asked about the {}",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecallSpec:
    """What a recall conversation is made of."""

    sessions: int = 16
    """Sessions before the questions are asked."""
    told: int = 2
    """Turns of a session that tell something, new or updated."""
    chatter: int = 2
    """Turns of a session that tell nothing, at most."""
    update_share: float = 0.3
    """Share of the telling turns that give an earlier fact another value, where there is an earlier one."""
    marked_share: float = 0.5
    """Share of the updates that say ``now``; the others can be told from the first telling by their date alone."""
    never_told: int = 8
    """Questions about what was never told."""

    def __post_init__(self) -> None:
        """Refuse what no conversation can be made of."""
        for name, least in (("sessions", 1), ("told", 1), ("chatter", 0), ("never_told", 0)):
            if getattr(self, name) < least:
                raise UserError(f"RecallSpec.{name} must be at least {least}, got {getattr(self, name)}")
        if self.sessions * self.told + self.never_told > len(_SUBJECTS) // 2:
            raise UserError(
                f"RecallSpec: {self.sessions} sessions with {self.told} facts each and {self.never_told} never told are "
                f"more than half of the {len(_SUBJECTS)} facts that can be told: lower sessions, told or never_told"
            )


class Key(NamedTuple):
    """What a fact is about: its subject, and what is told of it."""

    subject: str
    attribute: Attribute


_SUBJECTS = tuple(
    [Key(one, attribute) for one in PEOPLE for attribute in PERSONAL]
    + [Key(one, attribute) for one in THINGS for attribute in ABOUT_THINGS]
)


@dataclass
class _Told:
    """The tellings of one fact so far: values and turn ids, oldest first."""

    values: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    session: int = -1


def recall_conversation(seed: int | str, spec: RecallSpec | None = None) -> Conversation:
    """One conversation and every question its facts allow; the same for the same seed and spec.

    ``evidence`` names the turn with the newest value and ``session`` its session. The ``lure`` of an update is the
    value before it, that of a question never told is a value told of somebody else where there is one.
    """
    spec = spec or RecallSpec()
    draw = random.Random(f"recall {seed}")
    name = f"recall-{seed}"
    speakers = draw.sample(SPEAKERS, 2)
    known: dict[Key, _Told] = {}
    date = datetime(2020, 1, 1) + timedelta(days=draw.randrange(730))
    sessions = []
    for index in range(spec.sessions):
        sessions.append(Session(index, date, tuple(_turns(index, spec, speakers, known, draw))))
        date += timedelta(days=draw.randint(7, 60))
    told = [_told_question(name, key, fact) for key, fact in known.items()]
    never = [_never_told_question(name, key, known) for key in _never_told(spec.never_told, known, draw)]
    questions = draw.sample(told + never, len(told) + len(never))
    numbered = tuple(replace(one, index=i, id=f"{name}#{i}") for i, one in enumerate(questions))
    return Conversation(name, tuple(sessions), numbered, tuple(speakers))


def recall_conversations(split: str, count: int = 64, spec: RecallSpec | None = None) -> tuple[Conversation, ...]:
    """``count`` conversations of a split; splits with other names share no conversation."""
    return tuple(recall_conversation(f"{split}-{number}", spec) for number in range(count))


def distance(conversation: Conversation, question: Question) -> int:
    """Sessions from the telling to the question: 1 for the latest session; all sessions where nothing was told."""
    return len(conversation.sessions) - (question.session or 0)


def recall_texts() -> Iterator[str]:
    """Every word of the task in some text: what a vocabulary of it must hold."""
    yield from (*SPEAKERS, *PEOPLE, *THINGS, "now")
    yield from (line.format("") for line in CHATTER)
    for attribute in (*PERSONAL, *ABOUT_THINGS):
        yield " ".join((attribute.tell.format("", ""), attribute.ask.format(""), *attribute.values))


def _turns(
    index: int, spec: RecallSpec, speakers: Sequence[str], known: dict[Key, _Told], draw: random.Random
) -> Iterator[Turn]:
    """The turns of one session: what is told, among chatter; ``known`` takes in what is told."""
    lines: list[Key | None] = [_next_key(index, spec, known, draw) for _ in range(spec.told)]
    lines += [None] * draw.randint(0, spec.chatter)
    draw.shuffle(lines)
    for place, key in enumerate(lines):
        turn_id = f"S{index}:{place}"
        text = _chat(draw) if key is None else _tell(key, known, turn_id, index, spec, draw)
        yield Turn(turn_id, draw.choice(speakers), f"{text}.")


def _next_key(index: int, spec: RecallSpec, known: dict[Key, _Told], draw: random.Random) -> Key:
    """An earlier fact to update, or one that is new; it counts as told in this session from here on."""
    old = [key for key, fact in known.items() if fact.session < index]
    if old and draw.random() < spec.update_share:
        key = draw.choice(old)
    else:
        key = draw.choice([key for key in _SUBJECTS if key not in known])
    known.setdefault(key, _Told()).session = index
    return key


def _tell(key: Key, known: dict[Key, _Told], turn_id: str, index: int, spec: RecallSpec, draw: random.Random) -> str:
    fact = known[key]
    value = draw.choice([value for value in key.attribute.values if value not in fact.values[-1:]])
    is_marked = bool(fact.values) and draw.random() < spec.marked_share
    fact.values.append(value)
    fact.turns.append(turn_id)
    return key.attribute.tell.format(key.subject, value) + (" now" if is_marked else "")


def _chat(draw: random.Random) -> str:
    line = draw.choice(CHATTER)
    return line.format(draw.choice(THINGS if "the {}" in line else PEOPLE))


def _told_question(name: str, key: Key, fact: _Told) -> Question:
    is_update = len(fact.values) > 1
    return Question(
        conversation_id=name,
        index=0,
        text=key.attribute.ask.format(key.subject),
        answer=fact.values[-1],
        category=UPDATE if is_update else FACT,
        lure=fact.values[-2] if is_update else None,
        evidence=(fact.turns[-1],),
        evidence_status="ok",
        session=fact.session,
    )


def _never_told(count: int, known: dict[Key, _Told], draw: random.Random) -> list[Key]:
    """Half about subjects of whom something else was told, where there are enough; half about any."""
    free = [key for key in _SUBJECTS if key not in known]
    subjects = {key.subject for key in known}
    near = [key for key in free if key.subject in subjects]
    chosen = draw.sample(near, min(count // 2, len(near)))
    return chosen + draw.sample([key for key in free if key not in chosen], count - len(chosen))


def _never_told_question(name: str, key: Key, known: dict[Key, _Told]) -> Question:
    others = [fact.values[-1] for other, fact in known.items() if other.attribute == key.attribute]
    return Question(
        conversation_id=name,
        index=0,
        text=key.attribute.ask.format(key.subject),
        answer=None,
        category=NEVER_TOLD,
        is_trap=True,
        lure=others[0] if others else None,
    )
