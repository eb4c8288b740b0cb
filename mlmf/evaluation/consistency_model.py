"""A trained judge of consistency: any cross-encoder for natural language inference, or one that gives a single score.

Such a model reads two sentences, "the answer is what the system said" and "the answer is the gold one", and says how likely
the second follows from the first. Which model is worth trusting is for ``--consistency_labels`` to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlmf.errors import UserError
from mlmf.evaluation.consistency import Claim, Verdict
from mlmf.hub import ModelKind
from mlmf.retrieval.sentence_models import load_sentence_model

CROSS_ENCODERS = ModelKind(setting="consistency_model")


class CrossEncoderJudge:
    """Consistent is an answer from which the gold one follows with a probability of at least ``threshold``.

    A :class:`~mlmf.evaluation.consistency.ConsistencyJudge`.
    """

    def __init__(self, model: str, *, threshold: float = 0.5, device: str | None = None) -> None:
        """Load a cross-encoder of ``sentence-transformers``.

        Args:
            model: local folder or Hugging Face id, such as ``cross-encoder/nli-deberta-v3-small``.
            threshold: of the probability of entailment, or of the score of a model with one output.
            device: by default CUDA where there is one.

        Raises:
            UserError: the extra ``retrieval`` is not installed, or it is no such model.
        """
        self._model, folder = load_sentence_model("CrossEncoder", model, CROSS_ENCODERS, device=device)
        # of a folder the last part only: results name no place on the machine they come from
        self.name = f"cross-encoder {folder.name if Path(model).is_dir() else model}"
        self.threshold = threshold
        self._entailment = _entailment(self._model.model.config.id2label, model)
        self._known: dict[Claim, float] = {}

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Whether each gold answer follows from the answer; equal claims, as under two keys, are read once."""
        unread = [one for one in dict.fromkeys(claims) if one not in self._known]
        if unread:
            self._known |= zip(unread, self._scores(unread), strict=True)
        return [Verdict(self._known[one] >= self.threshold) for one in claims]

    def _scores(self, claims: Sequence[Claim]) -> list[float]:
        from torch import Tensor
        from torch.nn import Identity

        pairs = [(_statement(one.question, one.answer), _statement(one.question, one.gold)) for one in claims]
        # a model with one output has its own way to a score from 0 to 1
        activation = None if self._entailment is None else Identity()
        scores: Tensor = self._model.predict(
            pairs, show_progress_bar=False, activation_fn=activation, convert_to_tensor=True
        )
        likely = scores if self._entailment is None else scores.softmax(-1)[:, self._entailment]
        return [float(one) for one in likely.tolist()]


def _statement(question: str, answer: str) -> str:
    return f'The answer to "{question}" is: {answer}'


def _entailment(labels: dict[int, str], model: str) -> int | None:
    """The output that means entailment; ``None`` for a model with a single one.

    Raises:
        UserError: several outputs, and none of them or more than one is called entailment.
    """
    if len(labels) == 1:
        return None
    # "not_entailment" is the other output of two-way models
    found = [number for number, label in labels.items() if label.lower().startswith("entail")]
    if len(found) != 1:
        raise UserError(
            f"consistency_model {model!r}: its outputs are {', '.join(labels.values())}, and none is entailment; give a "
            "model for natural language inference, or one with a single score"
        )
    return found[0]
