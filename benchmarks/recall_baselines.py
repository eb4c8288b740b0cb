"""The two ends of the scale: the same tiny Llama with no memory, and with every session in its context."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from benchmarks.recall_data import Asked
from benchmarks.recall_learner import Learner
from benchmarks.recall_model import is_correct, tiny_llama
from mlmf.memory.features import session_pieces
from mlmf.model import IGNORED
from mlmf.types import answer_prompt

INTERMEDIATE = 396
"""Feed-forward width that gives this Llama as many parameters as the full model has with its memory."""


class ContextLearner(Learner):
    """A Llama that reads sessions and questions in one sequence, and answers without seeing the other questions.

    The questions of a conversation share its sessions: each starts at the position after them and is masked from the
    rest, so that the result is that of asking them one by one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, has_context: bool, language: float = 0.3) -> None:
        """Build with or without the sessions in context; ``language`` weighs the next-token loss on them."""
        super().__init__(tokenizer)
        self.lm = tiny_llama(tokenizer, INTERMEDIATE)
        # as the memory's fusion does: from random projections attention learns to copy an answer later
        for layer in self.lm.model.layers:
            nn.init.eye_(layer.self_attn.v_proj.weight)
            nn.init.eye_(layer.self_attn.o_proj.weight)
        self.has_context, self.language = has_context, language

    def forward(self, batch: Sequence[Asked]) -> tuple[Tensor, list[bool], dict[str, float]]:
        """Read each conversation and all its questions in one pass."""
        rows = [self.sequence(asked) for asked in batch]
        size = max(len(row[0]) for row in rows)
        ids, positions, block, labels = (
            torch.stack([F.pad(row[part], (0, size - len(row[part])), value=fill) for row in rows])
            for part, fill in enumerate((0, 0, -1, IGNORED))
        )
        later = torch.ones(size, size, dtype=torch.bool).tril()
        # block 0 is the sessions: everybody sees them; a question sees itself beside
        sees = later & ((block[:, None] == 0) | (block[:, None] == block[:, :, None]))
        mask = torch.zeros(sees.shape).masked_fill(~sees, -1e9)[:, None]
        logits = self.lm(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        targets = labels[:, 1:]
        answers = F.cross_entropy(logits[:, :-1][targets != IGNORED], targets[targets != IGNORED])
        said = (block[:, 1:] == 0) & (block[:, :-1] == 0)
        language = F.cross_entropy(logits[:, :-1][said], ids[:, 1:][said]) if said.any() else answers.new_zeros(())
        correct = [
            right
            for row, asked in enumerate(batch)
            for i in range(len(asked.questions))
            for right in is_correct(logits[row : row + 1], labels[row : row + 1].where(block[row] == i + 1, IGNORED))
        ]
        loss = answers + self.language * language
        return loss, correct, {"gen": answers.item(), "lm": language.item()}

    def sequence(self, asked: Asked) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids, positions, block (0 sessions, then 1, 2, ... a question each) and labels of one conversation."""
        ids = self.encode("".join(piece for s in asked.conversation.sessions for piece in session_pieces(s)))
        ids = ids if self.has_context else []
        start = len(ids)
        positions, block, labels = list(range(start)), [0] * start, [IGNORED] * start
        for number, question in enumerate(asked.questions, 1):
            prompt, target = self.encode(answer_prompt(question.query)), self.target(question)
            ids += prompt + target
            size = len(prompt) + len(target)
            positions += range(start, start + size)
            block += [number] * size
            labels += [IGNORED] * len(prompt) + target
        return torch.tensor(ids), torch.tensor(positions), torch.tensor(block), torch.tensor(labels)
