"""F1 that a way of writing cannot change: the official F1 over text in which quotes, dashes, accents and dates are uniform.

It differs from the official one in form alone. Both sides are put into the same Unicode form, dates into ``7 May 2023``,
lists are split at commas, semicolons, "and" and "&", the gold *and* the answer of category 3 end at their first
semicolon, and an abstention may be worded freely. How parts and tokens are counted is the official scorer's way.
"""

from __future__ import annotations

import re
import unicodedata

from mlmf.abstention import is_abstention
from mlmf.data.dates import rewrite_dates
from mlmf.evaluation.official import f1_score, normalize_answer, stems

_UNIFORM = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032`\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2212", "-"),
        # a long dash stands between words, so unlike a hyphen it must not join them
        **dict.fromkeys("\u2012\u2013\u2014\u2015", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    }
)
_ACCENTS = re.compile("[\u0300-\u036f]")
_LIST = re.compile(r"[,;\n]|\s&\s|\band\b", re.IGNORECASE)


def uniform_text(text: str) -> str:
    """The text with typographic quotes, dashes, accents and invisible characters made plain, and dates as ``7 May 2023``."""
    plain = unicodedata.normalize("NFKC", text).translate(_UNIFORM)
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", plain)))
    return rewrite_dates(" ".join(plain.split()))


def split_list(text: str) -> list[str]:
    """Parts of an answer that lists several things, of uniform text; the whole text where nothing separates them."""
    parts = [part.strip() for part in _LIST.split(text)]
    return [part for part in parts if normalize_answer(part)] or [text]


def f1_robust(prediction: str, answer: str | None, category: int | None = None) -> float:
    """Score one question as :func:`~mlmf.evaluation.official.f1_official` does, whatever form the answer is written in.

    Args:
        prediction: what the system said.
        answer: the gold answer; ``None`` where the right reaction is to abstain.
        category: LoCoMo's own number, which decides about lists (1), reasons (3) and abstention (5); ``None`` elsewhere.

    Returns:
        0 to 1, rounded to three decimals.
    """
    if answer is None or category == 5:
        return float(is_abstention(prediction))
    predicted, expected = uniform_text(prediction), uniform_text(answer)
    if category == 3:
        predicted, expected = predicted.split(";")[0], expected.split(";")[0]
    if category != 1:
        return round(f1_score(predicted, expected), 3)
    candidates, wanted = split_list(predicted), split_list(expected)
    best = [max(f1_score(candidate, part) for candidate in candidates) for part in wanted]
    return round(sum(best) / len(best), 3)


def contains_answer(prediction: str, answer: str) -> bool:
    """Whether the stems of ``answer`` stand in ``prediction`` one after the other; an empty ``answer`` is in nothing."""
    said, wanted = stems(uniform_text(prediction)), stems(uniform_text(answer))
    starts = range(len(said) - len(wanted) + 1) if wanted else range(0)
    return any(said[start : start + len(wanted)] == wanted for start in starts)
