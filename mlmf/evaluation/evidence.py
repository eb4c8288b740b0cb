"""Did the system read the turns that hold the answer? Recall, reciprocal rank and NDCG of the turns it recalled.

Only questions with evidence count. LoCoMo's own scorer gives recall 1 where there is none, counts repeated ids twice and
never matches a malformed one; ids are repaired when the file is read, and what stays unresolved is left out here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

CUTOFFS = (1, 5, 10, 20)
"""The k of recall@k and NDCG@k."""


def recall_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Share of the evidence among the first ``k`` recalled turns."""
    wanted = set(evidence)
    return len(wanted & set(ranked[:k])) / len(wanted)


def any_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """1 where some of the evidence is among the first ``k``, else 0 (LongMemEval's recall_any)."""
    return float(recall_at(ranked, evidence, k) > 0)


def all_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """1 where all the evidence is among the first ``k``, else 0 (LongMemEval's recall_all)."""
    return float(recall_at(ranked, evidence, k) == 1)


def reciprocal_rank(ranked: Sequence[str], evidence: Collection[str]) -> float:
    """One over the rank of the first recalled turn that is evidence, 0 if none is."""
    return next((1 / rank for rank, turn in enumerate(ranked, start=1) if turn in evidence), 0.0)


def ndcg_at(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Gain of the evidence among the first ``k``, discounted by the logarithm of its rank, over the best possible gain."""
    wanted = set(evidence)
    # a turn named twice would be paid twice
    found = [turn in wanted for turn in dict.fromkeys(ranked)][:k]
    gain = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(found, start=1) if hit)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
    return gain / best
