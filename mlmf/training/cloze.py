"""Self-supervision: gaps in what was said, to be filled from memory. Dialogues without questions train the read so."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlmf.memory.entities import FUNCTION_WORDS
from mlmf.memory.speakers import ASSISTANTS, FIRST_PERSON
from mlmf.types import Conversation, Session, Turn, format_month

LEAST_WORDS = 7
LONGEST_GAP = 4
FOREIGN_SHARE = 0.15
"""Gaps in what somebody else said in another conversation, where the right answer is that nothing is known."""
SWAPPED_SHARE = 0.1
"""Gaps asked about the other person in a conversation of several, who said nothing of the kind: the answer is the same."""
NAMED_SHARE = 0.6
"""Gaps that hold a name or number if there is one; the others are drawn from all."""
DATED_SHARE = 0.7
FEWEST_KEPT = 0.35
"""Share of the content words that stays beside the gap, at least: few words are harder to find the turn by."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_EDGES = ".,!?;:\"'"


@dataclass(frozen=True)
class Gap:
    """A question made of a sentence with a gap.

    ``answer`` is ``None`` if the one who is asked about never said it. ``place`` is the session and turn that the sentence
    comes from, ``None`` if it comes from another conversation.
    """

    question: str
    answer: str | None
    place: tuple[int, int] | None


def session_gaps(
    conversation: Conversation, session: Session, others: Sequence[Conversation], count: int, seed: int
) -> Iterator[Gap]:
    """Up to ``count`` gaps in different sentences of a session, the same for the same seed.

    Args:
        conversation: whose session it is.
        session: what is asked about.
        others: where foreign sentences come from.
        count: gaps at most.
        seed: of every choice.
    """
    draw = random.Random(f"cloze {seed} {conversation.id} {session.index}")
    sentences = list(_sentences(session))
    people = list(dict.fromkeys(turn.speaker for turn, _, _ in sentences))
    for turn, i, sentence in draw.sample(sentences, min(count, len(sentences))):
        asked, place = sentence, (session.index, i)
        is_foreign = draw.random() < FOREIGN_SHARE
        if is_foreign:
            other = draw.choice(others)
            strange = list(_sentences(draw.choice(other.sessions)))
            if other.id == conversation.id or not strange:
                continue
            asked = draw.choice(strange)[2]
        made = _with_gap(asked, draw)
        if made is None:
            continue
        text, answer = made
        when = f" in {format_month(session.date)}" if session.date and draw.random() < DATED_SHARE else ""
        rest = [person for person in people if person != turn.speaker]
        is_swapped = bool(rest) and draw.random() < SWAPPED_SHARE
        speaker = draw.choice(rest) if is_swapped else turn.speaker
        who = "I" if speaker.lower() in FIRST_PERSON else speaker
        question = f"What did {who} say{when} in place of the gap: {text}?"
        yield Gap(question, None if is_foreign or is_swapped else answer, None if is_foreign else place)


def _sentences(session: Session) -> Iterator[tuple[Turn, int, str]]:
    for i, turn in enumerate(session.turns):
        if turn.speaker.lower() not in ASSISTANTS:
            for sentence in _SENTENCE_END.split(turn.text):
                if len(sentence.split()) >= LEAST_WORDS:
                    yield turn, i, sentence


def _with_gap(sentence: str, draw: random.Random) -> tuple[str, str] | None:
    """The sentence with a few words replaced by a gap and some left out, and what stood in the gap."""
    words = sentence.split()
    bare = [word.strip(_EDGES).lower() for word in words]
    content = [bool(word) and word not in FUNCTION_WORDS for word in bare]
    spans = [
        (i, j)
        for i in range(1, len(words))  # the first word is capitalised whatever it is
        for j in range(i + 1, min(i + LONGEST_GAP, len(words)) + 1)
        if content[i] and content[j - 1] and not any(word[-1] in _EDGES for word in words[i : j - 1])
    ]
    if not spans:
        return None
    named = [(i, j) for i, j in spans if any(word[0].isupper() or word[0].isdigit() for word in words[i:j])]
    i, j = draw.choice(named if named and draw.random() < NAMED_SHARE else spans)
    share = draw.uniform(FEWEST_KEPT, 1.0)
    kept = [not is_content or draw.random() < share for is_content in content]
    left = [word for word, stays in zip(words[:i], kept[:i], strict=True) if stays]
    right = [word for word, stays in zip(words[j:], kept[j:], strict=True) if stays]
    return " ".join([*left, "___", *right]).rstrip(".!?"), " ".join(words[i:j]).strip(_EDGES)
