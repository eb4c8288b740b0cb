"""Other trained memories from the package index, as learners: the same text, questions, steps and batch.

Each reads a conversation session by session and then its questions in one last segment, a question and its answer after
the other. Sizes are set so that the trainable parameters are about those of the full model; everything else is the
package's default. ``pip install -e '.[bench]'`` brings the packages, but for memorizing-transformers-pytorch, which asks
for a CUDA build of faiss: ``pip install --no-deps memorizing-transformers-pytorch && pip install faiss-cpu``.
"""

from __future__ import annotations

import importlib
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from benchmarks.recall_data import Asked, word_tokenizer
from benchmarks.recall_learner import Learner
from benchmarks.recall_model import LAYERS, WIDTH
from mlmf.errors import UserError
from mlmf.memory.features import session_pieces
from mlmf.model import IGNORED
from mlmf.types import answer_prompt

HEADS = {"heads": 4, "dim_head": 32}
LANGUAGE_WEIGHT = 0.3


class PeerLearner(Learner):
    """What the peers share: segments, packed questions, loss and marks."""

    def __init__(self, net: nn.Module, tokenizer: PreTrainedTokenizerBase) -> None:
        """Wrap a peer's network."""
        super().__init__(tokenizer)
        self.net = net

    @abstractmethod
    def read(self, segments: Sequence[Tensor]) -> list[Tensor]:
        """Logits ``(B, S, V)`` of each segment ``(B, S)``, read in order; right-padded with 0."""

    def forward(self, batch: Sequence[Asked]) -> tuple[Tensor, list[bool], dict[str, float]]:
        """Read each conversation, then its questions; conversations of different lengths are read apart."""
        by_length: dict[int, list[int]] = {}
        for row, asked in enumerate(batch):
            by_length.setdefault(len(asked.conversation.sessions), []).append(row)
        answers, said = [], []
        marks: dict[int, list[bool]] = {}
        for rows in by_length.values():
            right, answer_losses, said_losses = self._alike([batch[row] for row in rows])
            answers.append(answer_losses)
            said.append(said_losses)
            marks |= dict(zip(rows, right, strict=True))
        answer, language = torch.cat(answers).mean(), torch.cat(said).mean()
        correct = [mark for row in range(len(batch)) for mark in marks[row]]
        return answer + LANGUAGE_WEIGHT * language, correct, {"gen": answer.item(), "lm": language.item()}

    def _alike(self, batch: Sequence[Asked]) -> tuple[list[list[bool]], Tensor, Tensor]:
        """Marks per conversation, losses of answer tokens and of session tokens, for conversations of one length."""
        segments = []
        for t in range(len(batch[0].conversation.sessions)):
            rows = [self.encode("".join(session_pieces(asked.conversation.sessions[t]))) for asked in batch]
            segments.append(_padded(rows, 0))
        packed = [self._questions(asked) for asked in batch]
        ids, block = _padded([ids for ids, _ in packed], 0), _padded([block for _, block in packed], 0)
        *heard, asked_logits = self.read([*segments, ids])
        labels = ids.where(block > 0, IGNORED)[:, 1:]
        predicted = asked_logits[:, :-1]
        answers = F.cross_entropy(predicted[labels != IGNORED], labels[labels != IGNORED], reduction="none")
        said = [
            F.cross_entropy(logits[:, :-1][part[:, 1:] > 0], part[:, 1:][part[:, 1:] > 0], reduction="none")
            for logits, part in zip(heard, segments, strict=True)
        ]
        wrong = (predicted.argmax(-1) != labels) & (labels != IGNORED)
        marks = [
            [not bool((wrong[row] & (block[row, 1:] == i + 1)).any()) for i in range(len(asked.questions))]
            for row, asked in enumerate(batch)
        ]
        return marks, answers, torch.cat(said)

    def _questions(self, asked: Asked) -> tuple[list[int], list[int]]:
        """Ids of all questions with their answers, and for each token of an answer which it belongs to, from 1."""
        ids, block = [], []
        for number, question in enumerate(asked.questions, 1):
            prompt = self.encode("\n" + answer_prompt(question.query))
            target = self.target(question)
            ids += prompt + target
            block += [0] * len(prompt) + [number] * len(target)
        return ids, block


class RecurrentMemory(PeerLearner):
    """recurrent-memory-transformer-pytorch: 32 memory tokens written after and read before each segment."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Build the network."""
        module = _imported("recurrent_memory_transformer_pytorch")
        super().__init__(
            module.RecurrentMemoryTransformer(
                WIDTH, num_tokens=len(tokenizer), depth=LAYERS, num_memory_tokens=32, seq_len=1024,
                use_xl_memories=False, ff_mult=3, **HEADS,
            ),
            tokenizer,
        )  # fmt: skip

    def read(self, segments: Sequence[Tensor]) -> list[Tensor]:
        """Segment by segment, the memories of one to the next, with full back-propagation."""
        memories, logits = None, []
        for segment in segments:
            out, memories, _ = self.net(segment, memories, mask=segment != 0)
            logits.append(out)
        return logits


class MemorizingPeer(PeerLearner):
    """memorizing-transformers-pytorch: attention over the nearest of all past keys in the middle layer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Build the network."""
        module = _imported("memorizing_transformers_pytorch")
        self.folder = tempfile.TemporaryDirectory()
        super().__init__(
            module.MemorizingTransformer(
                num_tokens=len(tokenizer), dim=WIDTH, depth=LAYERS, ff_mult=5, num_retrieved_memories=32,
                max_knn_memories=8192, knn_memories_directory=self.folder.name, pad_id=0, **HEADS,
            ),
            tokenizer,
        )  # fmt: skip

    def read(self, segments: Sequence[Tensor]) -> list[Tensor]:
        """Segment by segment; keys of padding go into the memory too, as the package has no mask."""
        net: Any = self.net
        with net.knn_memories_context(batch_size=segments[0].shape[0]) as memories:
            return [net(segment, knn_memories=memories) for segment in segments]


class TitansPeer(PeerLearner):
    """titans-pytorch, memory as context: one sequence, read in segments of 32 tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Build the network."""
        module = _imported("titans_pytorch")
        super().__init__(
            module.MemoryAsContextTransformer(
                num_tokens=len(tokenizer), dim=WIDTH, depth=LAYERS, segment_len=32, num_persist_mem_tokens=4,
                num_longterm_mem_tokens=4, neural_memory_layers=(2,), ff_mult=1, **HEADS,
            ),
            tokenizer,
        )  # fmt: skip

    def read(self, segments: Sequence[Tensor]) -> list[Tensor]:
        """All segments as one sequence, which the package cuts by itself."""
        logits: Tensor = self.net(torch.cat(list(segments), 1))
        return list(logits.split([segment.shape[1] for segment in segments], 1))


PEERS: dict[str, Callable[[], Learner]] = {
    "recurrent-memory-transformer": lambda: RecurrentMemory(word_tokenizer()),
    "memorizing-transformers": lambda: MemorizingPeer(word_tokenizer()),
    "titans-mac": lambda: TitansPeer(word_tokenizer()),
}


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"the peer {name} cannot be imported ({error}): install the extra 'bench', see benchmarks/recall_peers.py, "
            "or leave it out with --variants"
        ) from error


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    size = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (size - len(row))] for row in rows])
