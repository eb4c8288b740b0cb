"""Who and what a turn mentions: the interface, the built-in rules for English, and spaCy for those who have it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, Protocol

from mlmf.errors import UserError

# capitalised words that open sentences or fill dialogue without naming anything
_COMMON = frozenset(
    """a absolutely actually after ah all also always am an and any are as at aw awesome been but by bye can could
    definitely did do does exactly for from glad good great had has have he hello her hey hi his how i if im in indeed
    is it its ive just keep let lets like maybe me my nice no not now of oh ok okay on one or our please really right
    she so some sometimes sounds still sure thank thanks that thats the their them then there these they this those to
    today tomorrow too very was we well were what when where which who why will wish with wow would yeah yes yesterday
    yet you your""".split()  # noqa: SIM905 (a list of a hundred strings reads worse)
)
_NAME = r"[A-Z][\w'&-]*"
_SPAN = re.compile(rf"\b{_NAME}(?:\s+(?:(?:of|the|de)\s+)*{_NAME})*")
_QUOTED = re.compile(r'"([^"]{2,60})"')
_PLAIN_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")

# without "this" and "that", which mostly stand alone in speech; looked ahead of, since the next phrase may be near
_PHRASE = re.compile(r"\b(?i:a|an|the|my|your|his|her|our|their)(?=((?:\s+[a-z][a-z'-]*){1,4}))")
_NOUN = re.compile(r"\b[a-z]{3,}(?:tion|sion|ment|ness|ship|hood|ism|ity|ology|graphy)s?\b")
_MODIFIER = re.compile(r"[a-z]{2,}(?:ful|less|ous|ive|able|ible|ical|ish|ly|est|ed)")
_MODIFIERS = frozenset(
    """amazing annual awesome bad best big black blue brown busy cool cute dark dear different easy entire exciting fast
    few final first free fresh full fun funny general good great green grey half happy hard high huge kind large last
    late latest least light little local long lovely low main major many more most new next nice old only open other own
    past perfect personal pink pretty public purple quick quiet rare real recent red rich right rough sad safe same
    second short simple single slow small soft solid special strong super sweet tall third tiny tough upcoming very warm
    weird well white whole wide wild wonderful worst wrong yellow young""".split()  # noqa: SIM905
)
# words that stand where a noun would and say nothing about the matter
_EMPTY = frozenset(
    """a about an and any are as at be but bit can couple day days did do does evening for from had has have he
    her his i if in is it kind lot lots month much morning my night of on one ones or our part people person
    place she so some sort stuff that the their then there they thing things time times to was way ways we week
    weekend were what when where which while who will with would year years you your""".split()  # noqa: SIM905
)

FUNCTION_WORDS = _COMMON | _EMPTY
"""Words that name nothing, lower-cased."""

_MEASURES = frozenset(("CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"))
"""spaCy's entities that are amounts and times, which tie unrelated turns together."""


def name_pattern(name: str) -> str:
    """A regular expression for a name as a word of its own; in scripts without spaces, wherever it stands."""
    name = unicodedata.normalize("NFC", name)
    if any(unicodedata.east_asian_width(letter) in "WF" for letter in name):
        return re.escape(name)
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def is_mentioned(name: str, text: str) -> bool:
    """Whether a text has a name as a word of its own, in any case."""
    return re.search(name_pattern(name), unicodedata.normalize("NFC", text), re.IGNORECASE) is not None


class EntityExtractor(Protocol):
    """Finds what the turns of a conversation have in common."""

    def __call__(self, text: str, speakers: Sequence[str] = ()) -> tuple[str, ...]:
        """Names and things mentioned in ``text``, lower-cased, without repeats.

        Args:
            text: what was said in one turn.
            speakers: who takes part in the session; their names count however they are written.
        """


def entity_extractor(kind: Literal["rules", "spacy"]) -> EntityExtractor:
    """The extractor of a config's ``entities``.

    Raises:
        UserError: spaCy is asked for and it or its English model is not installed.
    """
    return extract_by_rules if kind == "rules" else SpacyExtractor()


def extract_by_rules(text: str, speakers: Sequence[str] = ()) -> tuple[str, ...]:
    """Quoted titles, capitalised spans, speakers by name, and the heads of simple noun phrases, of English text.

    >>> extract_by_rules('We saw "Blue Velvet" at The Indie Pulse with Sarah.')
    ('blue velvet', 'the indie pulse', 'sarah')
    >>> extract_by_rules("my sister sold the old boat, ben", ["Anna", "Ben"])
    ('ben', 'sister', 'boat')
    """
    return _by_rules(text, tuple(speakers))


@lru_cache(maxsize=65536)
def _by_rules(text: str, speakers: tuple[str, ...]) -> tuple[str, ...]:
    text = text.translate(_PLAIN_QUOTES)
    found = _QUOTED.findall(text)
    text = _QUOTED.sub(" ", text)
    found += _capitalised(text)
    found += [name for name in speakers if is_mentioned(name, text)]
    found += _noun_heads(text)
    names = (name.strip("' ").removesuffix("'s").lower() for name in found)
    return tuple(dict.fromkeys(name for name in names if name))


def _capitalised(text: str) -> list[str]:
    found = []
    for match in _SPAN.finditer(text):
        words = match.group().split()
        while words and words[0].split("'")[0].lower() in _COMMON and (len(words) == 1 or words[0] != "The"):
            words.pop(0)
        if words:
            found.append(" ".join(words))
    return found


def _noun_heads(text: str) -> list[str]:
    """The first word after a determiner that is no modifier, and words whose ending makes them nouns; in the singular."""
    found = []
    for match in _PHRASE.finditer(text):
        for word in match.group(1).split():
            if word in _EMPTY:
                break
            if word not in _MODIFIERS and not _MODIFIER.fullmatch(word):
                found.append(_singular(word.split("'")[0]))
                break
    return found + [_singular(word) for word in _NOUN.findall(text)]


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


class SpacyExtractor:
    """Named entities and the heads of noun phrases by a spaCy pipeline for English; speakers by name."""

    def __init__(self, model: str = "en_core_web_sm") -> None:
        """Load a pipeline.

        Raises:
            UserError: spaCy or the pipeline is not installed.
        """
        try:
            spacy = import_module("spacy")
        except ImportError as error:
            raise UserError(
                "entities is 'spacy', which is not installed: pip install 'mlmf[spacy]', or set entities: rules"
            ) from error
        try:
            self.pipeline: Any = spacy.load(model)
        except OSError as error:
            raise UserError(
                f"entities is 'spacy', whose model {model!r} is not installed: python -m spacy download {model}, "
                "or set entities: rules"
            ) from error
        self._extract = lru_cache(maxsize=65536)(self._mentions)

    def __call__(self, text: str, speakers: Sequence[str] = ()) -> tuple[str, ...]:
        """Mentions of one turn, as :class:`EntityExtractor` says."""
        return self._extract(text, tuple(speakers))

    def _mentions(self, text: str, speakers: tuple[str, ...]) -> tuple[str, ...]:
        document = self.pipeline(text)
        found = [entity.text for entity in document.ents if entity.label_ not in _MEASURES]
        found += [name for name in speakers if is_mentioned(name, text)]
        found += [chunk.root.lemma_ for chunk in document.noun_chunks if chunk.root.pos_ == "NOUN"]
        names = (name.strip("' \n").removesuffix("'s").lower() for name in found)
        return tuple(dict.fromkeys(name for name in names if name))
