"""The trained memory as a system of the harness: sessions go into tensors, only the question is in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mlmf.base_model import resolve_base
from mlmf.checkpoint import read_config
from mlmf.config.model import MemorySettings
from mlmf.errors import UserError
from mlmf.llm.local import LocalLanguageModel
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.systems.base import MemorySystem
from mlmf.types import Answer, Query, Session


class MLMFSystem(MemorySystem):
    """One conversation's :class:`MemoryState`, written by ``observe`` and read by ``answer``."""

    name = "mlmf"

    def __init__(self, model: MLMFModel, *, max_new_tokens: int) -> None:
        """Use a trained model."""
        self.model, self.max_new_tokens = model.eval(), max_new_tokens
        self.reset()

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        *,
        base_model: str | None = None,
        device: str | None = None,
        max_new_tokens: int = 24,
        memory: MemorySettings | None = None,
    ) -> MLMFSystem:
        """Load a checkpoint folder.

        Args:
            path: the folder.
            base_model: where the base model is, if not where its name in the checkpoint leads.
            device: by default CUDA where there is one.
            max_new_tokens: the longest answer, in tokens.
            memory: changes to the checkpoint's settings.

        Raises:
            UserError: not a checkpoint, or its base model cannot be found.
        """
        return cls(_load(path, base_model, device, memory), max_new_tokens=max_new_tokens)

    def reset(self) -> None:
        """Start with empty memory."""
        self.state: MemoryState = self.model.init_state()
        self._turns = 0

    def observe(self, session: Session) -> None:
        """Write one session."""
        self.state = self.model.remember([session], self.state)
        self._turns += len(session.turns)

    def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer from memory; every question reads the same state."""
        answers = self.model.answer_all(queries, self.state, self.max_new_tokens)
        left_out = self._turns - sum(not node.is_session for node in self.state.nodes[0])
        # without a semantic layer there is no place for a turn by itself
        return [replace(one, turns_left_out=left_out) for one in answers] if self.model.config.semantic else answers


def language_model(
    checkpoint: str | Path, *, base_model: str | None = None, device: str | None = None
) -> LocalLanguageModel:
    """The checkpoint's own language model, adapters and all, without any memory: the control for the text systems.

    It abstains by the same rule as the checkpoint does.

    Arguments and errors are those of :meth:`MLMFSystem.from_checkpoint`.
    """
    model = _load(checkpoint, base_model, device).eval()
    return LocalLanguageModel(model.lm, model.tokenizer, abstain_from=model.config.abstain_from)


def _load(
    checkpoint: str | Path, base_model: str | None, device: str | None, memory: MemorySettings | None = None
) -> MLMFModel:
    if base_model is None:
        name = read_config(checkpoint).base_model
        try:
            resolve_base(name)
        except UserError as error:
            raise UserError(
                f"checkpoint {checkpoint}: its base model {name!r} cannot be found; say where it is with "
                f"--checkpoint_base. {error}"
            ) from error
    return MLMFModel.from_pretrained(checkpoint, base_model=base_model, device=device, memory=memory)
