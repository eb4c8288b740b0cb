"""Which of a conversation's speakers a text names: by name, by role, by "I" or "you"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from mlmf.memory.entities import FUNCTION_WORDS, name_pattern

FIRST_PERSON = frozenset(("me", "user"))
"""Speakers who ask about themselves, lower-cased."""
ASSISTANTS = frozenset(("assistant", "bot", "chatbot", "system"))
"""Speakers whom a question addresses, and whose words are no facts about anybody, lower-cased."""

WORDS = frozenset(
    [
        "art",
        "bill",
        "chase",
        "dawn",
        "drew",
        "faith",
        "frank",
        "grace",
        "hope",
        "hunter",
        "jack",
        "joy",
        "mark",
        "may",
        "pat",
        "rob",
        "rose",
        "sue",
    ]
)
"""Names that in lower case are words."""

_I = re.compile(r"\bI\b")
_ROMAN = re.compile(r"\b(?:War|Part|Act|Chapter|Volume|Type) I\b")
_ME = re.compile(r"\b(?:me|my|mine|myself)\b", re.IGNORECASE)
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)


def named_speakers(text: str, speakers: Sequence[str]) -> list[bool]:
    """For each speaker, whether a question names them.

    A name counts in any case, but for one that is also a word ("Mark"), which wants its own, and one that opens questions
    ("Will") not to stand first either. Of several names that fit in one place the longest counts; the first of several names is enough where nobody
    else has it. "I" names a speaker of :data:`FIRST_PERSON`. Where nothing of this names anybody, "me" or "my" do so
    too, and "you" names one of :data:`ASSISTANTS`.

    >>> named_speakers("Which phone did Anna recommend to me?", ["User", "Anna", "Anna Lee"])
    [False, True, False]
    """
    text = unicodedata.normalize("NFC", text)
    roles = [speaker.lower() for speaker in speakers]
    named = _by_name(text, [unicodedata.normalize("NFC", speaker) for speaker in speakers])
    if _I.search(_ROMAN.sub("", text)):
        named = [one or role in FIRST_PERSON for one, role in zip(named, roles, strict=True)]
    if not any(named):
        named = [
            bool((role in FIRST_PERSON and _ME.search(text)) or (role in ASSISTANTS and _YOU.search(text)))
            for role in roles
        ]
    return named


def _by_name(text: str, speakers: Sequence[str]) -> list[bool]:
    named = [False] * len(speakers)
    firsts = [speaker.partition(" ")[0] for speaker in speakers]
    forms = list(enumerate(speakers))
    forms += [(i, first) for i, first in enumerate(firsts) if first not in speakers and firsts.count(first) == 1]
    for i, form in sorted(forms, key=lambda one: -len(one[1])):
        # what was this name is not a shorter one too
        text, count = _pattern(form).subn(" ", text)
        named[i] = named[i] or count > 0
    return named


def _pattern(name: str) -> re.Pattern[str]:
    if name.lower() in FIRST_PERSON | {""}:
        return re.compile(r"(?!)")  # nouns like any other, as in "the user interface": pronouns name them
    if name.lower() in FUNCTION_WORDS:
        return re.compile(rf"(?<!^){name_pattern(name)}")
    return re.compile(name_pattern(name), 0 if name.lower() in WORDS else re.IGNORECASE)
