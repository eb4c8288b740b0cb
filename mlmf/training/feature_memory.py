"""Session features kept in memory between the steps that need them: reading a file for each costs a tenth of a step."""

from __future__ import annotations

from collections import OrderedDict

from mlmf.memory.features import SessionFeatures
from mlmf.training.feature_cache import FeatureCache
from mlmf.types import Session

KEPT_BYTES = 2**30


class FeatureMemory:
    """A :class:`FeatureCache` that remembers what it loaded last, up to a number of bytes."""

    def __init__(self, cache: FeatureCache, limit: int = KEPT_BYTES) -> None:
        """Load through ``cache`` and hold at most ``limit`` bytes, on the CPU."""
        self.cache, self.limit = cache, limit
        self.held_bytes = 0
        self._kept: OrderedDict[Session, SessionFeatures] = OrderedDict()

    def load(self, session: Session) -> SessionFeatures:
        """Features of a session, which nobody may change: the next step gets the same tensors."""
        if session in self._kept:
            self._kept.move_to_end(session)
            return self._kept[session]
        features = self.cache.load(session)
        self._kept[session] = features
        self.held_bytes += _size(features)
        while self.held_bytes > self.limit:
            self.held_bytes -= _size(self._kept.popitem(last=False)[1])
        return features


def _size(features: SessionFeatures) -> int:
    return sum(tensor.nbytes for tensor in vars(features).values())
