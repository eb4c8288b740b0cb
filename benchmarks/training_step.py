"""A training step with memory against one of plain LoRA: same examples, same tokens, same optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel

from benchmarks.timing import Pair, compare
from mlmf.config.training import TrainConfig
from mlmf.model import IGNORED, MLMFModel
from mlmf.training.batching import Collator
from mlmf.training.examples import build_examples, tokenise
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.training.objective import Objective
from mlmf.training.optimiser import MasterAdamW
from mlmf.types import Conversation


def optimiser_of(model: torch.nn.Module) -> MasterAdamW:
    """The optimiser of ``train.py`` over all trainable weights, in one group."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    names, weights = zip(*named, strict=True)
    return MasterAdamW([{"params": list(weights), "names": list(names), "lr": 1e-5, "weight_decay": 0.0}])


def train_ratio(
    model: MLMFModel, base: PreTrainedModel, conversations: Sequence[Conversation], cache: Path, repeats: int
) -> Pair:
    """Time one step of ``train.py``'s defaults, sessions and distractors written into memory, against plain LoRA.

    ``base`` gets adapters and is not the base model afterwards. Reading sessions and queries is counted apart:
    training does it once and keeps what it read.
    """
    config = TrainConfig()
    for lm in (model.lm, base):
        lm.set_attn_implementation("eager")  # as the training loop does on a CPU
    examples, _ = tokenise(
        build_examples(conversations[:1], config.objectives), model.tokenizer, cache,
        max_prompt_tokens=config.max_reply_context, max_target_tokens=config.max_target_tokens,
    )  # fmt: skip
    count = min(config.per_device_train_batch_size, len(examples))
    rows = [{**examples[i], "index": i, "epoch": 0} for i in range(count)]
    collator = Collator(
        conversations, FeatureMemory(FeatureCache(model, cache)), config.seed, model.tokenizer.pad_token_id
    )
    collator.distractors = config.distractor_sessions
    batch = collator(rows)
    model.queries.keep(batch.queries)

    settings = model.config.lora
    lora = LoraConfig(r=settings.r, lora_alpha=settings.lora_alpha, task_type="CAUSAL_LM", target_modules="all-linear")
    base.requires_grad_(False)
    plain = get_peft_model(base, lora, autocast_adapter_dtype=False).train()
    plain_optimiser = optimiser_of(plain)
    objective = Objective(model, config.tbptt_sessions, config.entropy_weight, config.evidence_weight).train()
    optimiser = optimiser_of(model)
    device = model.device
    ids, mask, labels = batch.input_ids.to(device), batch.attention_mask.to(device), batch.labels.to(device)
    positions = (labels[:, 1:] != IGNORED).any(0).nonzero().squeeze(-1)
    targets = labels[:, positions + 1]
    wanted = targets != IGNORED

    def with_memory() -> None:
        made = collator(rows)
        objective(made, config.lambda_ret, made.counts).total.backward()
        optimiser.step()
        optimiser.zero_grad()

    def without() -> None:
        output = plain(input_ids=ids, attention_mask=mask, logits_to_keep=positions, use_cache=False)
        F.cross_entropy(output.logits[wanted].float(), targets[wanted]).backward()
        plain_optimiser.step()
        plain_optimiser.zero_grad()

    return compare(with_memory, without, repeats)
