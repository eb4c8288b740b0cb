"""The judges of a run: the one of consistency, by words or by a trained model, and the language model of column J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlmf.config.evaluation import EvalConfig
from mlmf.evaluation.consistency import ConsistencyJudge, LabelledAnswer, LexicalJudge, judge_accuracy
from mlmf.evaluation.consistency_model import CrossEncoderJudge
from mlmf.evaluation.judge import describe_judge, load_judge


@dataclass(frozen=True)
class Judges:
    """Those that give verdicts on every answer of a run."""

    consistency: ConsistencyJudge
    llm: ConsistencyJudge | None
    """Of column J; ``None`` for a run without one."""

    def describe(self, config: EvalConfig, labels: Sequence[LabelledAnswer]) -> dict[str, Any]:
        """What results say about them; how often each agrees with ``labels``, where there are any."""
        return {
            "judge": self.consistency.name,
            "consistency_threshold": config.consistency_threshold,
            "judge_accuracy": judge_accuracy(self.consistency, labels) if labels else None,
            "llm_judge": describe_judge(config, judge_accuracy(self.llm, labels) if labels and self.llm else None),
        }


def load_judges(config: EvalConfig) -> Judges:
    """The judges that the settings of a run name.

    Raises:
        UserError: the model of one cannot be loaded.
    """
    return Judges(_consistency_judge(config), load_judge(config))


def _consistency_judge(config: EvalConfig) -> ConsistencyJudge:
    if config.consistency_model is None:
        return LexicalJudge(config.consistency_threshold)
    return CrossEncoderJudge(config.consistency_model, threshold=config.consistency_threshold, device=config.device)
