"""Does an answer decline to answer? The two phrases of LoCoMo's official scorer, and a wider list for everything else.

The wider list accepts what models really write ("I don't know", "There is no information about that", "unknown") and
is read as an answer that *is* a refusal, not one that contains such words: the phrase must open the answer or be all
of it, and a guess after it ("I don't know, maybe Paris") makes it a claim again. The official phrases count anywhere
in the answer, as in the official scorer, so the wider list contains the official one.
"""

from __future__ import annotations

import re
import unicodedata

OFFICIAL_PHRASES = ("no information available", "not mentioned")
"""LoCoMo, category 5: an answer that contains one of these scores 1, any other 0."""

ABSTENTION = "Not mentioned in the conversation"
"""What the prompts ask for, and what the always-abstain control says."""

_SOURCE = r"(?:conversation|dialogue|dialog|chat|context|text|history|memory|transcript|provided information)"
_MADE_KNOWN = r"(?:mentioned|specified|stated|provided|discussed|disclosed|recorded|indicated|known|said|given)"
_SUBJECT = rf"(?:it|this|that|the {_SOURCE}|(?:the|this|that|his|her|their)(?: [\w'-]+){{1,4}})"
# what may follow a bare participle without making it part of a claim ("not given a raise" is one)
_OPEN_END = rf"(?=$|[.,;:!)]|\s(?:in|by|from|within|anywhere|at all|here|explicitly|directly|(?:the )?{_SOURCE})\b)"

_LEAD_IN = re.compile(r"(?:(?:sorry|unfortunately),?\s+|(?:the )?answer(?: is)?:?\s+)+")
_WHOLE = re.compile(
    rf"(?:{_SUBJECT} (?:is|was|remains) )?(?:unknown|unclear|not available|not clear)"
    r"|unsure|not sure|i(?:'m| am) (?:not sure|unsure)|no idea|i have no idea|no answer|unanswerable"
    r"|n/a|not applicable|information not available"
)
_OPENING = re.compile(
    r"i (?:do not|don't|did not|didn't) (?:know|recall|remember|have (?:any |enough |that )?(?:information|memory))\b"
    r"|i (?:cannot|can't|can not|could not|couldn't|am unable to|am not able to) "
    r"(?:answer|determine|find|know|recall|remember|say|tell)\b"
    r"|(?:there (?:is|was|are) |there's )?(?:no|not enough|insufficient|not any) "
    r"(?:specific |such |further )?(?:mention|information|evidence|details?|record)"
    r"(?=$|[.,;:!)]|\s(?:of|about|on|that|is|was|are|available|provided|given|found|in|regarding|to)\b)"
    rf"|(?:{_SUBJECT}(?: is not| was not|'s not| isn't| wasn't| has not been| hasn't been)|not)"
    rf"(?: explicitly| directly)? {_MADE_KNOWN}{_OPEN_END}"
    rf"|(?:the |this )?{_SOURCE} (?:does not|doesn't|did not|didn't|never) "
    r"(?:mention|say|specify|state|contain|provide|indicate|discuss|tell)"
    r"|(?:it |this |that )?(?:cannot|can't|can not|could not) be (?:determined|answered|known|inferred|found)\b"
    r"|unknown (?:from|in|based on|according to)\b"
)
_GUESS = re.compile(r"\b(?:but|maybe|perhaps|probably|possibly|likely|might|i think|i guess|i believe)\b")


def is_official_abstention(text: str) -> bool:
    """Whether LoCoMo's official scorer takes ``text`` as an abstention (category 5)."""
    lowered = text.lower()
    return any(phrase in lowered for phrase in OFFICIAL_PHRASES)


def is_abstention(text: str) -> bool:
    """Whether ``text`` declines to answer, by the official phrases or the wider list. An empty text does not."""
    if is_official_abstention(text):
        return True
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").lower()
    plain = " ".join(plain.split()).strip(" \"'*`(")
    plain = _LEAD_IN.sub("", plain, count=1) if _LEAD_IN.match(plain) else plain
    if _WHOLE.fullmatch(plain.rstrip(" .!)\"'*`")):
        return True
    return _OPENING.match(plain) is not None and _GUESS.search(plain) is None
