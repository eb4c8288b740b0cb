"""LoCoMo's official F1, to the third decimal.

The official scorer of LoCoMo (Maharana et al., ACL 2024, ``task_eval/evaluation.py``) is rebuilt here rule by rule,
oddities included, because a number is only comparable when they are: ASCII punctuation vanishes without leaving a
space, "and" is dropped beside the articles, words are stemmed, category 1 is split at commas on both sides, the gold of
category 3 ends at its first semicolon, and category 5 asks for one of two phrases.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import lru_cache

from nltk.stem import PorterStemmer

from mlmf.abstention import is_official_abstention

_STEMMER = PorterStemmer()
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROPPED_WORDS = re.compile(r"\b(?:a|an|the|and)\b")


def normalize_answer(text: str) -> str:
    """Lower-case, without ASCII punctuation, "a", "an", "the", "and" and surplus white space.

    Typographic quotes and dashes survive, as in the official scorer: an ``it's`` with a curly apostrophe is another word.
    """
    plain = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_DROPPED_WORDS.sub(" ", plain).split())


def f1_score(prediction: str, gold: str) -> float:
    """F1 of two multisets of stemmed tokens, 0 when they share none (or one is empty)."""
    predicted, expected = stems(prediction), stems(gold)
    shared = sum((Counter(predicted) & Counter(expected)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def f1_multi(prediction: str, gold: str) -> float:
    """F1 of a list of answers (LoCoMo's category 1): each comma part of the gold takes its best predicted part.

    A surplus predicted part costs nothing, and a gold list whose parts are joined by "and" is one part.
    """
    predicted = [part.strip() for part in prediction.split(",")]
    expected = [part.strip() for part in gold.split(",")]
    return sum(max(f1_score(candidate, part) for candidate in predicted) for part in expected) / len(expected)


def f1_official(prediction: str, answer: str | None, category: int) -> float:
    """Score one LoCoMo question as the official scorer does, rounded to three decimals.

    Args:
        prediction: what the system said.
        answer: the gold answer; not read in category 5.
        category: LoCoMo's own number, 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial.

    Raises:
        ValueError: the category is not 1 to 5, or the answer is missing in categories 1 to 4.
    """
    if category == 5:
        return float(is_official_abstention(prediction))
    if answer is None:
        raise ValueError(f"category {category} needs a gold answer")
    if category == 1:
        return round(f1_multi(prediction, answer), 3)
    if category == 3:
        return round(f1_score(prediction, answer.split(";")[0].strip()), 3)
    if category in (2, 4):
        return round(f1_score(prediction, answer), 3)
    raise ValueError(f"LoCoMo has the categories 1 to 5, got {category}")


def token_f1(prediction: str, gold: str) -> float:
    """Stemmed token F1 rounded to three decimals: the metric of LOCCO's probes and of people's own questions."""
    return round(f1_score(prediction, gold), 3)


def stems(text: str) -> list[str]:
    """Porter stems (NLTK's own variant, as in the official scorer) of the words left by :func:`normalize_answer`."""
    return [_stem(word) for word in normalize_answer(text).split()]


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return str(_STEMMER.stem(word))
