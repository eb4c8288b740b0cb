"""Hand-made answers whose figures can be worked out on paper."""

from __future__ import annotations

from typing import Any

from mlmf.evaluation.consistency import ConsistencyJudge, LexicalJudge
from mlmf.evaluation.samples import Sample
from mlmf.evaluation.scored import Scored, score_samples
from mlmf.types import Conversation, Question

SAMPLE_FIELDS = set(Sample.__dataclass_fields__)


def answer(
    index: int,
    prediction: str | None,
    *,
    conversation: str = "c",
    task: str = "locco",
    llm_judge: ConsistencyJudge | None = None,
    **changes: Any,
) -> Scored:
    """One scored answer to a question with the gold answer "gold" of category 1; ``None`` as prediction is a failure."""
    status = {"status": "error", "error": "why"} if prediction is None else {}
    of_sample = {name: changes.pop(name) for name in list(changes) if name in SAMPLE_FIELDS}
    sample = Sample(
        conversation, index, f"{conversation}#{index}", "Who?", prediction=prediction, **(status | of_sample)
    )
    gold = {"answer": "gold", "category": 1, "evidence_status": "ok" if changes.get("evidence") else "none"}
    question = Question(conversation, index, "Who?", **(gold | changes))
    (scored,) = score_samples(
        task,
        [sample],
        [Conversation(conversation, (), (question,))],
        judge=LexicalJudge(),
        llm_judge=llm_judge,
        success_threshold=0.5,
    )
    return scored
