"""The other overlaps in circulation: set F1, BLEU-1, ROUGE-1 and ROUGE-L, exact match. Each is its own column.

On the same 1,540 answers the F1s of published harnesses lie between 16.5 and 18.7, so a figure without the name of its
variant says little, and two variants never belong into one column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from nltk.stem import PorterStemmer
from nltk.tokenize import word_tokenize
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from mlmf.evaluation.official import normalize_answer

_SEPARATORS = str.maketrans(dict.fromkeys(".,!?", " "))
_ROUGE_TOKEN = re.compile(r"[a-z0-9]+")
_ROUGE_STEMMER = PorterStemmer()


def f1_set(prediction: str, gold: str) -> float:
    """F1 of two sets of lower-case words, without stemming: the "F1" of the harnesses of A-Mem and mem0."""
    predicted, expected = (set(text.lower().translate(_SEPARATORS).split()) for text in (prediction, gold))
    return _f1(len(predicted & expected), len(predicted), len(expected))


def bleu1(prediction: str, gold: str) -> float:
    """BLEU with unigrams alone and NLTK's first smoothing, as A-Mem and mem0 report it.

    Tokens are NLTK's words of the whole text. Splitting it into sentences first, as they do, would need a download and
    only tells the full stops of several sentences apart.
    """
    predicted, expected = (word_tokenize(text.lower(), preserve_line=True) for text in (prediction, gold))
    smoothing = SmoothingFunction().method1
    return float(sentence_bleu([expected], predicted, weights=(1, 0, 0, 0), smoothing_function=smoothing))


def rouge1(prediction: str, gold: str) -> float:
    """ROUGE-1: F1 of two multisets of stemmed words."""
    predicted, expected = _rouge_tokens(prediction), _rouge_tokens(gold)
    shared = sum((Counter(predicted) & Counter(expected)).values())
    return _f1(shared, len(predicted), len(expected))


def rouge_l(prediction: str, gold: str) -> float:
    """ROUGE-L: F1 of the longest common subsequence of stemmed words."""
    predicted, expected = _rouge_tokens(prediction), _rouge_tokens(gold)
    return _f1(_longest_common_subsequence(predicted, expected), len(predicted), len(expected))


def exact_match(prediction: str, gold: str) -> bool:
    """Whether the two are the same after the official normalisation, words in the same order."""
    return normalize_answer(prediction) == normalize_answer(gold)


def _rouge_tokens(text: str) -> list[str]:
    """Words as the package rouge-score takes them: ASCII letters and digits, those over three characters stemmed."""
    return [_rouge_stem(word) if len(word) > 3 else word for word in _ROUGE_TOKEN.findall(text.lower())]


@cache
def _rouge_stem(word: str) -> str:
    return str(_ROUGE_STEMMER.stem(word))


def _longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    lengths = [0] * (len(second) + 1)
    for one in first:
        before = 0
        for position, other in enumerate(second, start=1):
            longest = before + 1 if one == other else max(lengths[position], lengths[position - 1])
            before, lengths[position] = lengths[position], longest
    return lengths[-1]


def _f1(shared: int, n_predicted: int, n_expected: int) -> float:
    return 2 * shared / (n_predicted + n_expected) if shared else 0.0
