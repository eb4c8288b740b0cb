"""Conversations told of people with names: roles such as ``User`` get one, and their questions ask about that person.

Most dialogues for training call their speakers by role, and their questions are the user's own: "Where did I hear the
band?". Conversations between people with names are asked about as in "Where did Anna hear the band?".
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from mlmf.errors import UserError
from mlmf.memory.speakers import ASSISTANTS
from mlmf.types import Conversation, Question, Session, Turn

ROLES = frozenset(("user", "me", "speaker 1", "speaker 2"))
"""Speakers that get a name."""
PARTNERS = ASSISTANTS - {"system"}
"""Speakers that get a name where questions are asked about the wrong person; else an assistant stays what it is."""
NAMES = (
    ("Adam", "he"), ("Alice", "she"), ("Andrew", "he"), ("Anita", "she"), ("Ben", "he"), ("Carla", "she"), ("Chris", "he"),
    ("Clara", "she"), ("David", "he"), ("Diana", "she"), ("Edward", "he"), ("Elena", "she"), ("Felix", "he"), ("Fiona", "she"),
    ("George", "he"), ("Grace", "she"), ("Henry", "he"), ("Irene", "she"), ("Jason", "he"), ("Julia", "she"), ("Kevin", "he"),
    ("Laura", "she"), ("Marcus", "he"), ("Nina", "she"), ("Oscar", "he"), ("Paula", "she"), ("Peter", "he"), ("Rita", "she"),
    ("Simon", "he"), ("Sonia", "she"), ("Thomas", "he"), ("Vera", "she"), ("Victor", "he"), ("Wendy", "she"),
)  # fmt: skip

_PRONOUNS = {"he": ("he", "him", "his", "his"), "she": ("she", "her", "her", "hers")}
_SELF = re.compile(r"\b(am I|do I|have I|I am|I'm|I have|I've|I do|I|me|my|mine|myself)\b", re.IGNORECASE)


def with_names(conversation: Conversation, seed: int, swapped_share: float = 0.0) -> Conversation | None:
    """A copy in which speakers of :data:`ROLES` have names, drawn by the seed and the conversation's id.

    Args:
        conversation: stays as it is. The copy keeps its ids.
        seed: of the names, and of the questions that are swapped.
        swapped_share: of the answerable questions about the one who asked them; each comes again, asked about the one
            they talk to, who said nothing of the kind: the right reaction is to abstain. Where somebody of
            :data:`PARTNERS` is that one, they get a name too.

    Returns:
        ``None`` where no speaker is a role.

    Raises:
        UserError: too few names are left that nobody in the conversation has.
    """
    spoken = dict.fromkeys(turn.speaker for turn in conversation.turns)
    roles = [speaker for speaker in spoken if speaker.lower() in ROLES]
    if not roles:
        return None
    partners = [speaker for speaker in spoken if speaker.lower() in PARTNERS] if swapped_share else []
    drawn = _draw_names(conversation, len(roles) + len(partners), random.Random(f"names {seed} {conversation.id}"))
    speakers = dict(zip((*roles, *partners), (name for name, _ in drawn), strict=True))

    def rename(turn: Turn) -> Turn:
        return replace(turn, speaker=speakers.get(turn.speaker, turn.speaker))

    sessions: Sequence[Session] = [
        replace(session, turns=tuple(map(rename, session.turns))) for session in conversation.sessions
    ]
    # only one speaker can be "I"
    asked = conversation.questions if len(roles) == 1 else ()
    questions = [_retold(question, *drawn[0]) for question in asked]
    if partners:
        draw = random.Random(f"swapped {seed} {conversation.id}")
        swapped = (_swapped(question, *drawn[1]) for question in asked if draw.random() < swapped_share)
        questions += [
            replace(question, index=number)
            for number, question in enumerate((one for one in swapped if one is not None), start=len(questions))
        ]
    return replace(
        conversation,
        sessions=tuple(sessions),
        questions=tuple(questions),
        speakers=tuple(speakers.get(speaker, speaker) for speaker in conversation.speakers),
    )


def can_be_swapped(conversation: Conversation) -> bool:
    """Whether somebody of :data:`ROLES` asks questions that could be about somebody of :data:`PARTNERS`."""
    spoken = {turn.speaker.lower() for turn in conversation.turns}
    answered = any(question.answer is not None for question in conversation.questions)
    return len(spoken & ROLES) == 1 and bool(spoken & PARTNERS) and answered


def _draw_names(conversation: Conversation, count: int, draw: random.Random) -> list[tuple[str, str]]:
    """Names, each with its pronoun, that no turn mentions, no speaker has and no question or answer says."""
    said = " ".join(turn.text for turn in conversation.turns)
    asked = (part for one in conversation.questions for part in (one.text, one.answer or ""))
    elsewhere = " ".join((*conversation.speakers, *(turn.speaker for turn in conversation.turns), *asked))
    unsaid = [person for person in NAMES if not re.search(rf"\b{person[0]}\b", said)]
    free = [person for person in unsaid if not re.search(rf"\b{person[0]}\b", elsewhere)]
    if len(free) < count:
        raise UserError(
            f"conversation {conversation.id}: {count} speakers want a name, and {len(free)} of the {len(NAMES)} known are not "
            "those of somebody in it; give its speakers names yourself, or set named_share to 0"
        )
    # again and again, so that a conversation in which only turns mention anybody keeps the names it was trained with
    while not set(drawn := draw.sample(unsaid, count)) <= set(free):
        pass
    return drawn


def _retold(question: Question, name: str, pronoun: str) -> Question:
    answer = None if question.answer is None else third_person(question.answer, pronoun, pronoun)
    return replace(question, text=third_person(question.text, name, pronoun), answer=answer)


def _swapped(question: Question, name: str, pronoun: str) -> Question | None:
    """The question about somebody else, to be abstained from; ``None`` where it has no answer or asks about nobody.

    It keeps its evidence: the turns that mislead.
    """
    text = third_person(question.text, name, pronoun)
    if question.answer is None or text == question.text:
        return None
    return replace(question, text=text, answer=None, is_trap=True, lure=question.answer, id="")


def third_person(text: str, name: str, pronoun: str) -> str:
    """What somebody says of themselves, said of them: ``name`` the first time, a pronoun after that.

    >>> third_person("Where did I hear the band that my sister and I like?", "Anna", "she")
    'Where did Anna hear the band that her sister and she like?'
    """
    subject, object_, possessive, own = _PRONOUNS[pronoun]
    forms = {
        "i": subject, "me": object_, "my": possessive, "mine": own, "myself": f"{object_}self" if pronoun == "she" else "himself",
        "am i": f"is {subject}", "do i": f"does {subject}", "have i": f"has {subject}", "i am": f"{subject} is",
        "i'm": f"{subject} is", "i have": f"{subject} has", "i've": f"{subject} has", "i do": f"{subject} does",
    }  # fmt: skip
    named = {
        **dict.fromkeys(("i", "me"), name), "my": f"{name}'s", "mine": f"{name}'s", "myself": name,
        "am i": f"is {name}", "do i": f"does {name}", "have i": f"has {name}", "i am": f"{name} is",
        "i'm": f"{name} is", "i have": f"{name} has", "i've": f"{name} has", "i do": f"{name} does",
    }  # fmt: skip
    told = _SELF.sub(_in_turn(named if name != pronoun else forms, forms), text)
    return told[:1].upper() + told[1:] if text[:1].isupper() else told


def _in_turn(first: dict[str, str], then: dict[str, str]) -> Callable[[re.Match[str]], str]:
    """What each match is replaced by: from ``first`` once, from ``then`` ever after."""
    seen = False

    def say(match: re.Match[str]) -> str:
        nonlocal seen
        forms, seen = (then if seen else first), True
        return forms[match[0].lower()]

    return say
