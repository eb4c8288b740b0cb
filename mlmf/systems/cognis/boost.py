"""What a memory gains beside its rank: by being of the time that is asked about, by being new, by what it names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from mlmf.config.cognis import CognisSettings
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis.analysis import Analysis
from mlmf.systems.cognis.records import Memory

_NEAR_DAYS = 7.0


def boosted(
    found: Sequence[tuple[Memory, float]], analysis: Analysis, latest: datetime | None, settings: CognisSettings
) -> list[tuple[Memory, float]]:
    """Blend the fused scores with nearness in time, and add what new and named memories gain.

    * the question names a time: ``(1 - w) · score + w · exp(-days / 7)``, with the days between that time and when the
      memory was said or the days it speaks of, whichever is nearer;
    * it asks about now: ``+ r · exp(-age / recency_days)``, the age counted from the newest message;
    * it mentions names and things: ``+ e · share of them that the memory mentions``.

    Args:
        found: memories with scores from 0 to 1.
        analysis: of the question.
        latest: when the newest message was said.
        settings: the weights.

    Returns:
        All of them, best first; ties stay as they were.
    """
    scored = [(memory, _score(memory, score, analysis, latest, settings)) for memory, score in found]
    return sorted(scored, key=lambda one: -one[1])


def nearness(memory: Memory, spans: Sequence[Span]) -> float:
    """``exp(-days / 7)`` between a memory and the nearest of the times; 0 for what has no date."""
    own = list(memory.spans)
    if memory.said is not None:
        own.append(Span(memory.said.date(), memory.said.date()))
    if not own:
        return 0.0
    return math.exp(-min(mine.distance(asked) for mine in own for asked in spans) / _NEAR_DAYS)


def _score(
    memory: Memory, score: float, analysis: Analysis, latest: datetime | None, settings: CognisSettings
) -> float:
    if settings.use_temporal and analysis.spans:
        share = settings.temporal_weight
        score = (1 - share) * score + share * nearness(memory, analysis.spans)
    elif settings.use_temporal and analysis.wants_latest and latest is not None and memory.said is not None:
        age = max(0.0, (latest - memory.said).total_seconds() / 86_400)
        score += settings.recency_weight * math.exp(-age / settings.recency_days)
    if settings.entity_weight and analysis.entities:
        mentioned = {*memory.entities, memory.speaker.lower()}
        score += settings.entity_weight * sum(name in mentioned for name in analysis.entities) / len(analysis.entities)
    return score
