"""Facts out of messages: what an extractor is, and the deterministic one that needs no language model."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from mlmf.memory.entities import FUNCTION_WORDS, extract_by_rules
from mlmf.retrieval.dates import Mention, describe, find_dates
from mlmf.systems.cognis.records import Candidate, Decision, Extraction, Memory, Similar
from mlmf.systems.english import is_question, split_sentences


class Extractor(ABC):
    """Finds facts in messages, and says what becomes of each beside what is known already."""

    reads_known = True
    """Whether finding facts goes by what is known; deciding on them always does."""

    @abstractmethod
    def extract(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Extraction:
        """The facts that messages state, in the order of the messages.

        Args:
            messages: of one session, in order.
            known: current facts that may be about the same things.
        """

    @abstractmethod
    def decide(self, candidate: Candidate, similar: Sequence[Similar]) -> Decision:
        """Add a fact, let it replace a known one, withdraw a known one, or leave all as it is.

        Args:
            candidate: the fact.
            similar: current facts about its topic, then those nearest to it, best first.

        Raises:
            StructuredOutputError: a language model gave no valid answer.
        """


_WORD = re.compile(r"([^\W_]+)(?:'[^\W_]+)*")  # without what follows an apostrophe
_WITHDRAWAL = re.compile(
    r"\b(?:(?:please\s+)?(?:forget|delete|erase|disregard|ignore)\s+(?:that|what|everything|it)\b|never\s*mind\s+what)",
    re.IGNORECASE,
)
_STATE = re.compile(r"\b(?:is|are|am|has|have|costs?|weighs?)\b|'(?:s|re|m|ve)\b", re.IGNORECASE)
_TOPICS = tuple(
    (topic, re.compile(pattern, re.IGNORECASE))
    for topic, pattern in {
        "home": r"\b(?:I|we)(?:'ve| have|'m| am)?\s+(?:just\s+|recently\s+|now\s+|finally\s+|no longer\s+|still\s+)*"
        r"(?:live|living|moved|relocated|settled)\s+(?:\w+\s+){0,2}?(?:in|to|into|near)\b",
        "work": r"\bI(?:'m| am)?\s+(?:now\s+|no longer\s+|currently\s+)*(?:work|working)\s+(?:as|at|for)\b"
        r"|\bI\s+(?:just\s+)?(?:quit|lost|left)\s+my\s+job\b|\bmy\s+new\s+job\s+is\b",
        "relationship": r"\bI(?:'m| am| got)\s+(?:now\s+|no longer\s+|just\s+|recently\s+)*"
        r"(?:married|engaged|divorced|single|dating)\b",
        "age": r"\bI(?:'m| am| just turned| turned)\s+(?:\d\d)\b(?!\s*(?:minutes|hours|days|weeks|%))",
        "studies": r"\bI(?:'m| am)\s+(?:now\s+)?(?:studying|majoring\s+in)\b",
        r"favourite \1": r"\bmy\s+(?:new\s+)?favou?rite\s+(\w+)\s+(?:is|are)\b",
        r"name of \1": r"\bmy\s+(\w+)(?:'s\s+name\s+is|\s+is\s+(?:called|named))\b",
    }.items()
)
"""What a speaker has one of at a time, and how that is said."""


class RuleExtractor(Extractor):
    """English by rules: every sentence that states something is a fact, with the days it speaks of written out.

    A fact about a topic of which one has one at a time (home, work, relationship, age, studies, a favourite, a name)
    replaces the one before it. Of two facts of one speaker in nearly the same words the first is kept; where a number or
    name in them differs and they say how something is, not what happened, the later one replaces it. "Forget what I said
    about ..." withdraws the fact that shares most words with it.
    """

    reads_known = False

    def __init__(self, *, same: float = 0.95, close: float = 0.85) -> None:
        """Set how near two facts are.

        Args:
            same: cosine from which two facts say the same.
            close: cosine from which a fact may be a new form of another, if most of their words agree as well.
        """
        self._same, self._close = same, close

    def extract(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Extraction:
        """Sentences that state something."""
        speakers = tuple(dict.fromkeys(message.speaker for message in messages))
        return Extraction(
            tuple(
                self._candidate(message, sentence, speakers)
                for message in messages
                for sentence in split_sentences(message.text, captions_apart=True)
                if _states_something(sentence)
            )
        )

    def decide(self, candidate: Candidate, similar: Sequence[Similar]) -> Decision:
        """By topic, then by nearness in meaning and words."""
        own = [near for near in similar if near.memory.speaker == candidate.speaker]
        if _WITHDRAWAL.search(candidate.text):
            meant = [near for near in own if _overlap(candidate.text, near.memory.text) > 0]
            best = max(meant, key=lambda near: (_overlap(candidate.text, near.memory.text), near.score), default=None)
            return Decision("DELETE", best.memory) if best else Decision("NONE")
        about = [near.memory for near in own if candidate.topic and near.memory.topic == candidate.topic]
        if about:
            old = max(about, key=lambda memory: memory.id)
            return Decision("NONE") if _overlap(candidate.text, old.text) == 1 else Decision("UPDATE", old)
        for near in sorted(own, key=lambda near: -near.score):
            overlap = _overlap(candidate.text, near.memory.text)
            if overlap == 1:
                return Decision("NONE")
            if near.score < self._close or overlap < 0.6:
                continue
            if _particulars(candidate.text) == _particulars(near.memory.text):
                if near.score >= self._same:
                    return Decision("NONE")
            elif _STATE.search(candidate.text) and not candidate.spans and not near.memory.spans:
                # what happened twice has happened twice; what is so replaces what was so
                return Decision("UPDATE", near.memory)
        return Decision("ADD")

    def _candidate(self, message: Memory, sentence: str, speakers: Sequence[str]) -> Candidate:
        text, mentions = sentence, find_dates(sentence, message.said)
        for mention in reversed(mentions):
            if mention.is_relative:
                text = f"{text[: mention.end]} ({describe(mention.span)}){text[mention.end :]}"
        return Candidate(
            speaker=message.speaker,
            text=text,
            said=message.said,
            session=message.session,
            position=message.position,
            turn_ids=message.turn_ids,
            entities=extract_by_rules(without_dates(sentence, mentions), speakers),
            spans=tuple(mention.span for mention in mentions),
            topic=_topic(message.speaker, sentence),
        )


def content_words(text: str) -> list[str]:
    """The words that say something, lower-cased, in order; all words where none does. Anna's is anna."""
    words = [word.lower() for word in _WORD.findall(text)]
    return [word for word in words if word not in FUNCTION_WORDS] or words


def without_dates(text: str, mentions: Sequence[Mention]) -> str:
    """The text without the phrases that name a time: June is no entity."""
    for mention in reversed(mentions):
        text = f"{text[: mention.start]} {text[mention.end :]}"
    return text


def _states_something(sentence: str) -> bool:
    if is_question(sentence):
        return False
    words = [word for word in content_words(sentence) if word not in FUNCTION_WORDS]
    return len(words) >= 3 or bool(_WITHDRAWAL.search(sentence)) or _topic("", sentence) != ""


def _topic(speaker: str, sentence: str) -> str:
    for topic, pattern in _TOPICS:
        if match := pattern.search(sentence):
            return f"{speaker.lower()}|{match.expand(topic).lower()}"
    return ""


def _overlap(first: str, second: str) -> float:
    """Words in both over words in either."""
    one, other = set(content_words(first)), set(content_words(second))
    return len(one & other) / max(1, len(one | other))


def _particulars(text: str) -> set[str]:
    """Numbers and names inside a sentence: what may differ between two forms of one fact."""
    words = _WORD.findall(text)
    return {
        word.lower() for i, word in enumerate(words) if word.isdigit() or (i and word[0].isupper() and word != "I")
    }
