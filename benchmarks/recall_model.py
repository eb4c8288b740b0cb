"""The memory model as a learner: a tiny Llama from scratch whose own, still changing states are what it remembers.

The package's writing half reads sessions with a frozen base model and without gradient, which is right for a trained
language model and useless for one that starts from nothing. Here sessions and questions are read by the language model
being trained, with gradient, through ``output_hidden_states``; everything after that is the package's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks.recall_data import Asked
from benchmarks.recall_learner import Learner
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.memory.features import SessionFeatures
from mlmf.memory.fusion import Fusion
from mlmf.memory.keys import QueryKeys
from mlmf.memory.losses import Evidence, entropy_hinge, evidence_loss, retention_loss
from mlmf.memory.state import MemoryState
from mlmf.model import IGNORED, MLMFModel
from mlmf.training.objective import count_found
from mlmf.types import Question, Session, answer_prompt

LAYERS, WIDTH, HEADS = 4, 128, 4


def tiny_llama(tokenizer: PreTrainedTokenizerBase, intermediate: int = 2 * WIDTH) -> LlamaForCausalLM:
    """A Llama from scratch with the vocabulary of the task; ``intermediate`` is the width of its feed-forward layers."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=intermediate, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=4096, tie_word_embeddings=True,
        # 0.02 is meant for widths ten times this one: states would start almost equal
        initializer_range=0.06, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    lm = LlamaForCausalLM(config)
    lm.set_attn_implementation("eager")  # the fastest on a CPU for sequences this short
    return lm


@dataclass(frozen=True)
class LossWeights:
    """What is added to the loss on the answers."""

    evidence: float = 0.3
    """``L_evi``: cross-entropy of the find scores over the turn that holds the answer."""
    language: float = 0.3
    """Next-token loss on the sessions."""
    retention: float = 0.1
    """lambda of equation (10)."""
    entropy: float = 0.1
    """Hinge on the entropy of the layer gate (alg. 26)."""


class MemoryLearner(Learner):
    """``MLMFModel`` around a tiny Llama, trained whole."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: MLMFConfig, weights: LossWeights) -> None:
        """Build from ``config``, whose layers are those of :data:`LAYERS`."""
        super().__init__(tokenizer)
        self.model = MLMFModel(tiny_llama(tokenizer), tokenizer, config)
        self.model.lm.requires_grad_(True)
        self.weights = weights
        start_open(self.model)

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Parameter groups at a peak rate; single numbers have far to go and move ten times as fast."""
        named = [(name, one) for name, one in self.named_parameters() if one.requires_grad]
        return [
            {"params": [one for _, one in named if one.dim() > 0], "lr": rate},
            {"params": [one for _, one in named if one.dim() == 0], "lr": 10 * rate, "weight_decay": 0.0},
        ]

    def read_live(self, rows: Sequence[Sequence[int]]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Hidden states of the live language model for rows of ids, right-padded, and the mean next-token loss."""
        size = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])
        mask = torch.tensor([[i < len(row) for i in range(size)] for row in rows])
        with self.model.encoder.base_only():
            output = self.model.lm(input_ids=ids, output_hidden_states=True, use_cache=False)
        wanted = mask[:, 1:]
        return output.hidden_states, F.cross_entropy(output.logits[:, :-1][wanted], ids[:, 1:][wanted])

    def remember(self, batch: Sequence[Asked]) -> tuple[MemoryState, Tensor, Tensor]:
        """Write every session of a batch: the state, the language loss and the retention loss."""
        model = self.model
        sessions = [session for asked in batch for session in asked.conversation.sessions]
        tokenized = [model.encoder.tokenize(session) for session in sessions]
        hidden, language = self.read_live([ids for ids, _ in tokenized])
        layers = torch.stack([hidden[layer] for layer in model.fusion_layers], 1)  # (sessions, L, S, D)
        keys = [(row, s.index) for row, asked in enumerate(batch) for s in asked.conversation.sessions]
        features = {
            key: SessionFeatures(
                model.memory.codec.encode(layers[i, :, 1 : len(ids)]),
                hidden[model.key_layer][i, 1 : len(ids)],
                torch.tensor(ids[1:]),
                torch.tensor(pieces[1:]),
            )
            for i, (key, (ids, pieces)) in enumerate(zip(keys, tokenized, strict=True))
        }
        state = model.init_state(len(batch))
        longest = max(len(asked.conversation.sessions) for asked in batch)
        drifts = []
        for t in range(longest):
            now: list[Session | None] = []
            for asked in batch:
                index = t - longest + len(asked.conversation.sessions)
                now.append(asked.conversation.sessions[index] if index >= 0 else None)
            new = model.write(now, [features[row, s.index] if s else None for row, s in enumerate(now)], state)
            if self.training and self.weights.retention and t:
                drifts.append(retention_loss(new, state).mean())
            state = new
        retention = torch.stack(drifts).mean() if drifts else language.new_zeros(())
        return state, language, retention

    def query(self, questions: Sequence[Question]) -> QueryKeys:
        """Keys of the questions, with gradient; a leading newline stands where the attention sink is."""
        rows = [self.encode(f"\n{question.text}") for question in questions]
        texts = [question.text for question in questions]
        size = max(map(len, rows))
        tokens = torch.tensor([[*row, *[0] * (size - len(row))] for row in rows])
        mask = torch.tensor([[i < len(row) for i in range(size)] for row in rows])
        if self.model.key_layer == 0:
            states = self.model.lm.get_input_embeddings()(tokens)
        else:
            states = self.read_live(rows)[0][self.model.key_layer]
        return self.model.memory.key_projection.query(states[:, 1:], tokens[:, 1:], mask[:, 1:], texts)

    def prompts(self, questions: Sequence[Question]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, mask and labels, left-padded; labels are the answer and the end."""
        rows = [(self.encode(answer_prompt(question.query)), self.target(question)) for question in questions]
        size = max(len(prompt) + len(target) for prompt, target in rows)
        pads = [size - len(prompt) - len(target) for prompt, target in rows]
        ids = [[0] * pad + prompt + target for pad, (prompt, target) in zip(pads, rows, strict=True)]
        mask = [[0] * pad + [1] * (size - pad) for pad in pads]
        labels = [[IGNORED] * (size - len(target)) + target for _, target in rows]
        return torch.tensor(ids), torch.tensor(mask), torch.tensor(labels)

    def forward(self, batch: Sequence[Asked]) -> tuple[Tensor, list[bool], dict[str, float]]:
        """Remember every session, then answer with the questions alone in context."""
        state, language, retention = self.remember(batch)
        questions = [question for asked in batch for question in asked.questions]
        state = state.select([i for i, asked in enumerate(batch) for _ in asked.questions])
        query = self.query(questions)
        ids, mask, labels = self.prompts(questions)
        output = self.model(ids, mask, state=state, labels=labels, query=query)
        correct = is_correct(output.logits, labels)
        evidence = hinge = language.new_zeros(())
        sought = found = 0
        if output.scores is not None:
            wanted = [one for asked in batch for one in _evidence(asked)]
            evidence = evidence_loss(output.scores, state, wanted).mean()
            sought, found = count_found(wanted, state, output.recalls)
        if self.model.config.entropy and output.gamma is not None:
            counted = mask[:, None].expand(output.gamma.shape[:3])
            hinge = entropy_hinge(output.gamma.flatten(0, 1), self.model.config.epsilon, counted.flatten(0, 1))
        w = self.weights
        loss = output.loss + w.language * language + w.retention * retention
        loss = loss + w.evidence * evidence + w.entropy * hinge
        gates = output.gates.detach().mean(0).tolist()
        log = {
            "gen": output.loss.item(), "lm": language.item(), "evi": evidence.item(), "ret": retention.item(),
            "found": found / max(1, sought), "gate_w": gates[0], "gate_e": gates[1], "gate_s": gates[2],
        }  # fmt: skip
        return loss, correct, log


def _evidence(asked: Asked) -> list[Evidence]:
    """Session and turn of what answers each question."""
    sessions = asked.conversation.sessions
    place = {turn.id: (session.index, i) for session in sessions for i, turn in enumerate(session.turns)}
    return [tuple(place[turn] for turn in question.evidence) for question in asked.questions]


@torch.no_grad()
def start_open(model: MLMFModel) -> None:
    """Let fusion start by copying what it reads, half open, and reading by what was found.

    Fusion starts as a copy of its host's attention and closed, so that a pretrained model is not disturbed. A host from
    scratch has nothing to copy and nothing to disturb, and a read that begins as noise takes long to be of use.
    """
    model.memory.find_weight.fill_(1.0)
    for fusion in cast("list[Fusion]", list(model.memory.fusions)):
        nn.init.eye_(fusion.v.weight)
        nn.init.eye_(fusion.o.weight)
        fusion.g.fill_(0.5)


def is_correct(logits: Tensor, labels: Tensor) -> list[bool]:
    """Whether the most likely token is the label at every labelled place of a row.

    That is the case exactly if greedy decoding writes the labels.
    """
    targets = labels[:, 1:]
    return ((logits[:, :-1].argmax(-1) == targets) | (targets == IGNORED)).all(-1).tolist()


def default_config(**changes: object) -> MLMFConfig:
    """The memory of the benchmark's full model."""
    # a language model that is still learning has no fixed statistics to make codes with: slots are its states
    settings: dict[str, object] = {
        "base_model": "recall-llama", "code_dim": 0, "fusion_layers": [1, 2, 3], "key_layer": 0, "recall_nodes": 3, "k": 16, "c_w": 16,
        "c_e": 8, "lora": LoraSettings(r=0),
    }  # fmt: skip
    return MLMFConfig(**{**settings, **changes})  # type: ignore[arg-type]
