"""Questions to answers: find, lay out the prompt, decode one line, and say what was read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, StoppingCriteriaList

from mlmf.abstention import is_abstention
from mlmf.errors import UserError
from mlmf.llm.abstaining import abstaining
from mlmf.llm.greedy import DecodingClock, FirstLine
from mlmf.memory.gate import LAYERS
from mlmf.memory.state import MemoryState
from mlmf.recall import Found, Recall, as_lines, choose
from mlmf.types import Answer, Query, answer_prompt

if TYPE_CHECKING:
    from mlmf.model import MLMFModel

SHORTEST_LINE = 8
"""Tokens of a dated line, about: so many turns are ranked for a budget as could fit into it."""


@torch.no_grad()
def answer_all(model: MLMFModel, queries: Sequence[Query], state: MemoryState, max_new_tokens: int) -> list[Answer]:
    """Answer questions greedily, up to the end of the first line.

    The prompt is the question alone; with ``recall_tokens`` the recalled turns stand before it as dated lines. With
    ``abstain_from`` the probability of the abstention decides whether it is said.

    Args:
        model: the model.
        queries: independent questions.
        state: one memory per question, or a single one for all.
        max_new_tokens: the most tokens written per answer.

    Returns:
        One answer per question; ``gates`` is empty where no memory of the call holds anything.

    Raises:
        UserError: ``max_new_tokens`` fills the model's window.
    """
    if not queries:
        return []
    began = time.perf_counter()
    tokenizer = model.tokenizer

    keys = model.query_keys([tokenizer(q.text, add_special_tokens=False)["input_ids"] for q in queries])
    found = model.read(keys, state)
    shown = shown_lines(model, [query.text for query in queries], state, found, model.config.recall_tokens)
    prompts = [answer_prompt(query, one.lines) for query, one in zip(queries, shown, strict=True)]
    longest = model.encoder.window - max_new_tokens
    if longest < 1:
        raise UserError(
            f"max_new_tokens {max_new_tokens} leaves no room for a question in the model's window of {model.encoder.window}"
        )
    ids, mask = _left_padded(tokenizer, prompts, longest)
    clock = DecodingClock()
    tokens, gamma = model.decode(
        ids.to(model.device), mask.to(model.device), found.bank, max_new_tokens=max_new_tokens, do_sample=False,
        stopping_criteria=StoppingCriteriaList([clock, FirstLine(tokenizer, ids.shape[1])]),
        logits_processor=abstaining(model.config.abstain_from, tokenizer, ids.shape[1]),
    )  # fmt: skip
    texts = tokenizer.batch_decode(tokens[:, ids.shape[1] :], skip_special_tokens=True)
    texts = [text.strip().split("\n")[0].strip() for text in texts]
    shares = None if gamma is None else gamma[:, :, -1].mean(1).tolist()
    seconds = (time.perf_counter() - began) / len(queries)
    return [
        Answer(
            text=text,
            abstained=is_abstention(text),
            recalled=_without_repeats(found.recalls[i].turn_ids + shown[i].turn_ids),
            recalled_lines=_without_repeats(found.recalls[i].lines + shown[i].lines),
            gates={} if shares is None else dict(zip(LAYERS, shares[i], strict=True)),
            tokens_read=int(mask[i].sum()),
            # with the one that ended it, where there was room for it
            tokens_written=min(_count(tokenizer, text) + 1, max_new_tokens),
            seconds=seconds,
            seconds_decoding=clock.seconds / len(queries),
        )
        for i, text in enumerate(texts)
    ]


def shown_lines(
    model: MLMFModel, questions: Sequence[str], state: MemoryState, found: Found, budget: int
) -> list[Recall]:
    """The turns that each prompt shows as dated lines, of ``budget`` tokens at most: none but where there is a budget.

    Args:
        model: the model.
        questions: their words.
        state: one memory per question, or a single one for all.
        found: what was found for them in it.
        budget: tokens of the lines of one prompt.
    """
    if found.scores is None or not budget:
        return [Recall((), ()) for _ in questions]
    ranked = choose(found.scores.nodes, state, budget // SHORTEST_LINE + 1)
    count = partial(_count, model.tokenizer)
    return [
        as_lines(
            recall, state.nodes[row if len(state.nodes) > 1 else 0], question, budget, count,
            model.config.recall_neighbours,
        )
        for row, (recall, question) in enumerate(zip(ranked, questions, strict=True))
    ]  # fmt: skip


def _count(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _without_repeats(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _left_padded(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
    """Ids and mask of prompts, each cut to its last ``longest`` tokens."""
    rows = [tokenizer(prompt, add_special_tokens=False)["input_ids"][-longest:] for prompt in prompts]
    size = max(map(len, rows))
    ids = torch.tensor([[tokenizer.pad_token_id] * (size - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (size - len(row)) + [1] * len(row) for row in rows])
    return ids, mask
