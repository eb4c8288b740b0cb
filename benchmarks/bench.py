"""Is memory cheap? The memory model against the same language model without memory, as ratios measured in one run.

    python -m benchmarks.bench

Both sides of a ratio are timed in turn and the medians are compared, so that figures of a busy machine still mean
something. Writes ``results/bench.json``; ``DEFINITIONS`` says what each key is, and is part of the file.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.codes import read_variance_kept
from benchmarks.machine import machine
from benchmarks.timing import Pair, compare
from benchmarks.training_step import train_ratio
from mlmf.base_model import load_base
from mlmf.config.model import MLMFConfig
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.memory.features import session_pieces
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.types import Conversation, Session, answer_prompt

RESULTS = Path("results/bench.json")
CONTEXT, DECODED, ANSWER = 128, 24, 16
"""Tokens of the prompt and of the text decoded after it; tokens of a LoCoMo answer, for both sides alike."""
BATCH = 8
"""Conversations remembered together."""
DEFINITIONS = {
    "encode_ratio": "tokens/s of encoding LOCCO sessions one by one over tokens/s of a plain forward pass; aim >= 1.1",
    "remember_ratio": "the same with tokenising and writing into the state",
    "decode_ratio": "time per token decoded with memory and merged adapters, the default, over the base model's with the "
    "same prompt; aim <= 1.10",
    "decode_ratio_unmerged": "the same after unmerge_adapters(), which saves the second copy of the adapted weights",
    "merged_bytes": "size of that copy",
    "train_ratio": "time of a training step over that of plain LoRA on the same tokens; aim <= 1.25",
    "state_bytes": "size of a memory at the default capacities once more sessions no longer make it larger, in the dtype "
    "of the model; aim <= 16e6",
    "state_bytes_int8": "the same with slots: int8",
    "state_over_kv_cache": "size of the memory of one conversation over that of the key-value cache of the text it holds; aim "
    "<= 0.125",
    "read_variance_kept": "share of the variance of keys and values, on LOCCO's test users, that codes made for its training "
    "users keep",
    "read_variance_kept_int8": "the same of codes rounded to eight bits",
    "batch_encode_ratio": f"tokens/s of remembering one LOCCO session (about 170 tokens) of each of {BATCH} "
    "conversations in one call over one call each; aim > 1",
    "batch_encode_ratio_long": "the same with sessions of LoCoMo (about 600 tokens)",
    "answer_speedup_vs_full_context": "seconds to read conversation and question into a key-value cache and decode "
    f"{ANSWER} tokens with it, over those to answer from memory. The writing of the memory, done once when a session "
    "ends, is counted apart; aim >= 10.4",
    "answer_speedup_vs_kept_cache": "the same where the reading of the conversation is counted apart on the other side "
    "too: its cache is kept between questions",
}


def text_ids(model: MLMFModel, session: Session) -> Tensor:
    """What the encoder reads of a session, ``(1, S)``."""
    return torch.tensor([model.tokenizer("".join(session_pieces(session)), add_special_tokens=False)["input_ids"]])


def encoding(
    model: MLMFModel, base: PreTrainedModel, sessions: list[Session], repeats: int
) -> tuple[dict[str, float], dict[str, Pair]]:
    """Reading sessions one by one, against a plain forward pass."""
    ids = [text_ids(model, session) for session in sessions]
    state = model.init_state()

    def plain() -> None:
        for row in ids:
            base(input_ids=row.to(base.device), use_cache=False)

    def encode() -> None:
        for session in sessions:
            model.encoder.encode([session])

    def remember() -> None:
        for session in sessions:
            model.remember([session], state)

    pairs = {"encode": compare(encode, plain, repeats), "remember": compare(remember, plain, repeats)}
    return {f"{name}_ratio": pair.speedup for name, pair in pairs.items()}, pairs


def batching(model: MLMFModel, sessions: list[Session], repeats: int) -> Pair:
    """One session of each of several conversations in one call, against one call each."""
    one, many = model.init_state(), model.init_state(len(sessions))

    def one_by_one() -> None:
        for session in sessions:
            model.remember([session], one)

    return compare(lambda: model.remember(sessions, many), one_by_one, repeats)


def decoder(generate: Any, ids: Tensor, new_tokens: int, **settings: Any) -> Callable[[], object]:
    """A call that decodes exactly ``new_tokens`` greedily."""
    settings |= {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": False}
    return lambda: generate(ids, attention_mask=torch.ones_like(ids), **settings)


def decoding(
    model: MLMFModel, base: PreTrainedModel, state: MemoryState, ids: Tensor, repeats: int
) -> tuple[dict[str, float], dict[str, Pair]]:
    """Time per token, the reading of the prompt subtracted."""
    pad: dict[str, Any] = {"pad_token_id": model.tokenizer.pad_token_id}

    def per_token() -> Pair:
        long, short = (
            compare(
                decoder(model.generate, ids, count, state=state),
                decoder(base.generate, ids, count, **pad),
                repeats,
            )
            for count in (DECODED + 1, 1)
        )
        return Pair((long.ours - short.ours) / DECODED, (long.theirs - short.theirs) / DECODED)

    pairs = {"decode": per_token()}
    merged_bytes = model.adapters.held_bytes
    model.unmerge_adapters()
    pairs["decode_unmerged"] = per_token()
    model.merge_adapters()
    ratios = {"decode_ratio": pairs["decode"].cost, "decode_ratio_unmerged": pairs["decode_unmerged"].cost}
    return {**ratios, "merged_bytes": merged_bytes}, pairs


def size(model: MLMFModel, conversation: Conversation, state: MemoryState) -> dict[str, float]:
    """How large a memory is, against the key-value cache of the text that it holds."""
    lm = model.lm.config.get_text_config()
    tokens = int(state.semantic_mask.sum())  # a long conversation is not held whole
    width = torch.finfo(model.lm.dtype).bits // 8
    head_dim = getattr(lm, "head_dim", None) or lm.hidden_size // lm.num_attention_heads
    cache = tokens * lm.num_hidden_layers * 2 * lm.num_key_value_heads * head_dim * width
    return {"state_over_kv_cache": state.n_bytes / cache, "tokens_remembered": tokens}


@torch.no_grad()
def full_bytes(model: MLMFModel, conversations: Sequence[Conversation], patience: int = 20) -> int:
    """Size of one memory that is given conversation after conversation, until ``patience`` sessions add nothing.

    Raises:
        UserError: it still grows after the last session.
    """
    state, largest, unchanged = model.init_state(), 0, 0
    sessions = [session for conversation in conversations for session in conversation.sessions]
    for number, session in enumerate(sessions):
        state = model.remember([replace(session, index=number)], state)
        unchanged = unchanged + 1 if state.n_bytes <= largest else 0
        largest = max(largest, state.n_bytes)
        if unchanged == patience:
            return largest
    raise UserError(f"a memory of {len(sessions)} sessions still grows: {largest:,} bytes. Give more conversations")


def answering(
    model: MLMFModel, base: PreTrainedModel, conversation: Conversation, state: MemoryState, repeats: int
) -> tuple[dict[str, float], dict[str, Pair]]:
    """One question: from memory, against reading as much of the newest conversation as the base model can."""
    prompt = model.tokenizer(answer_prompt(conversation.questions[0].query), return_tensors="pt")["input_ids"]
    history = torch.cat([text_ids(model, session) for session in conversation.sessions], 1)
    room = int(base.config.max_position_embeddings) - prompt.shape[1] - ANSWER
    whole = torch.cat([history[:, -room:], prompt], 1)
    pad: dict[str, Any] = {"pad_token_id": model.tokenizer.pad_token_id}
    ours = decoder(model.generate, prompt, ANSWER, state=state)
    theirs = decoder(base.generate, whole, ANSWER, **pad)
    # reading everything takes long enough to need no warm-up
    full = compare(ours, theirs, max(1, repeats // 2), warm_up=False)
    read = whole.shape[1] - prompt.shape[1]
    cache = base(input_ids=whole[:, :read], use_cache=True, logits_to_keep=1).past_key_values
    continued = decoder(base.generate, whole, ANSWER, past_key_values=cache, **pad)

    def from_cache() -> None:
        continued()
        cache.crop(read - cache.get_seq_length())  # the next question starts from the conversation again

    kept = compare(ours, from_cache, repeats)
    figures = {
        "answer_speedup_vs_full_context": full.speedup,
        "answer_speedup_vs_kept_cache": kept.speedup,
        "full_context_tokens": whole.shape[1],
    }
    return figures, {"answer": full, "answer_kept_cache": kept}


@torch.no_grad()
def remember_all(model: MLMFModel, conversation: Conversation) -> MemoryState:
    """The memory of a whole conversation."""
    state = model.init_state()
    for session in conversation.sessions:
        state = model.remember([session], state)
    return state


def measure(base_model: str, repeats: int, console: Console) -> dict[str, Any]:
    """Every figure of ``DEFINITIONS``, the medians they come from, and what could not be measured."""
    model = MLMFModel.from_base(base_model, MLMFConfig())
    base, _ = load_base(base_model, model.lm.dtype, str(model.device))
    users = load_task("locco", split="test").conversations
    more = load_task("locco", split="train").conversations
    skipped: dict[str, str] = {}
    try:
        long = load_task("locomo").conversations
    except UserError as error:
        skipped["answer_speedup_vs_full_context"] = "LoCoMo is not there: python -m mlmf.data.fetch locomo"
        console.print(f"answer_speedup_vs_full_context is skipped: {error}")
        long = load_task("locco_l").conversations
    conversation = long[0]
    with torch.no_grad():
        console.print("encoding ...")
        figures, pairs = encoding(model, base, [user.sessions[0] for user in users[:BATCH]], repeats)
        pairs["batch"] = batching(model, [user.sessions[0] for user in users[:BATCH]], repeats)
        pairs["batch_long"] = batching(model, [user.sessions[0] for user in (*long, *long)[:BATCH]], repeats)
        figures["batch_encode_ratio"] = pairs["batch"].speedup
        figures["batch_encode_ratio_long"] = pairs["batch_long"].speedup
        console.print("remembering a conversation ...")
        state = remember_all(model, conversation)
        figures |= size(model, conversation, state)
        console.print("filling a memory ...")
        figures["state_bytes"] = full_bytes(model, [*long, *users, *more])
        model.config.slots = "int8"  # of what is stored from now on
        figures["state_bytes_int8"] = full_bytes(model, [*long, *users, *more])
        model.config.slots = "model"
        console.print("decoding ...")
        prompt = torch.cat([text_ids(model, session) for session in users[0].sessions[:4]], 1)[:, :CONTEXT]
        parts = [decoding(model, base, state, prompt, repeats)]
        if not skipped:
            console.print("answering ...")
            parts.append(answering(model, base, conversation, state, repeats))
    console.print("training ...")
    with tempfile.TemporaryDirectory() as cache:
        spread = [session for user in users for session in user.sessions[::16]]
        figures |= read_variance_kept(model, [s for user in more for s in user.sessions], spread, Path(cache))
        step = train_ratio(model, base, users, Path(cache), repeats)
    parts.append(({"train_ratio": step.cost}, {"train": step}))
    for more_figures, more_pairs in parts:
        figures |= more_figures
        pairs |= more_pairs
    seconds = {name: {"ours": pair.ours, "theirs": pair.theirs} for name, pair in pairs.items()}
    dtype = str(model.lm.dtype).removeprefix("torch.")
    return {**figures, "skipped": skipped, "median_seconds": seconds, "dtype": dtype}


def show(figures: dict[str, Any], console: Console) -> None:
    """One row per figure."""
    table = Table("figure", "value", "what it is")
    for name, meaning in DEFINITIONS.items():
        if name in figures:
            value = figures[name]
            table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.2f}", meaning)
    console.print(table)


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--base_model", default="smollm2-135m", help="known name, local folder or hub id")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each side; medians are compared")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file that is written")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {arguments.repeats}")
    console = Console()
    figures = measure(arguments.base_model, arguments.repeats, console)
    show(figures, console)
    facts = {"base_model": arguments.base_model, "repeats": arguments.repeats, "machine": machine()}
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    write_json(arguments.output, {**figures, **facts, "definitions": DEFINITIONS, "created_at": created})
    return 0


if __name__ == "__main__":
    run_script(main)
