"""How many tokens a turn costs as a dialogue grows (Figure 2 of the CogMem paper): the whole history against CogMem.

    python -m benchmarks.cogmem_tokens

Dialogues of LOCCO's test users are said again, turn by turn, to CogMem and to its baseline; the replies are those of the
data, so no model is run: a tokenizer counts what it would have read. The agents are the rules. A turn is one exchange of
the data (short), or all that was said in one of its sessions (long). Every user first has an earlier session that has
ended, so that long-term memory has something to say. Writes ``results/cogmem.json`` and ``docs/cogmem_tokens.svg``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from pydantic import BaseModel
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import PreTrainedTokenizerBase

from benchmarks.machine import machine
from mlmf.base_model import load_tokenizer
from mlmf.config.cogmem import CogMemSettings
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.evaluation.results import write_json
from mlmf.llm.chat import ChatModel, Message, Reply
from mlmf.paths import atomic_path
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.chat import CogMemChat
from mlmf.systems.cogmem.sessions import Exchange

RESULTS = Path("results/cogmem.json")
PLOT = Path("docs/cogmem_tokens.svg")
VARIANTS: dict[str, dict[str, bool]] = {
    "baseline": {"focus_of_attention": False, "direct_access": False, "long_term": False},
    "+ FoA": {"focus_of_attention": True, "direct_access": False, "long_term": False},
    "+ FoA + DA": {"focus_of_attention": True, "direct_access": True, "long_term": False},
    "+ FoA + DA + LTM": {"focus_of_attention": True, "direct_access": True, "long_term": True},
}
"""The rows of the paper's Table 1."""
COMPARED_AT = 15
EARLIER = 4
"""Turns of the session that has ended before."""
TURNS = {"short": 30, "long": 20}
"""How many turns of each length are said; every user has as many."""


class Replayed(ChatModel):
    """Says what was said in the data, and counts what a model would have read."""

    name = "replayed"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, replies: Sequence[str]) -> None:
        """Reply in this order."""
        self._tokenizer, self._replies = tokenizer, iter(replies)

    @property
    def context_window(self) -> int:
        """More than any dialogue has: the baseline is to show its growth, not a model's limit."""
        return 1_000_000

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` alone."""
        return len(self._tokenizer(text, add_special_tokens=False).input_ids)

    def chat(
        self, conversations: Sequence[Sequence[Message]], max_new_tokens: int, *, schema: type[BaseModel] | None = None
    ) -> list[Reply]:
        """The next reply of the data."""
        return [self._reply(conversation) for conversation in conversations]

    def _reply(self, conversation: Sequence[Message]) -> Reply:
        messages = [{"role": message.role, "content": message.content} for message in conversation]
        prompt = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        text = next(self._replies)
        return Reply(text, self.count_tokens(str(prompt)), self.count_tokens(text))


def dialogues(length: str) -> Iterator[list[Exchange]]:
    """The turns of each test user: what the user said and what was replied, in one exchange or in a whole session."""
    for conversation in load_task("locco", split="test").conversations:
        sessions = [[turn.content for turn in session.turns] for session in conversation.sessions]
        if length == "long":
            exchanges = [("\n".join(said[::2]), "\n".join(said[1::2])) for said in sessions]
        else:
            exchanges = [pair for said in sessions for pair in zip(said[::2], said[1::2], strict=False)]
        yield exchanges[: EARLIER + TURNS[length]]


def prompt_tokens(
    exchanges: Sequence[Exchange], parts: dict[str, bool], tokenizer: PreTrainedTokenizerBase, encoder: Encoder
) -> list[int]:
    """What each turn of a dialogue costs to read, after an earlier session has ended."""
    model = Replayed(tokenizer, [reply for _, reply in exchanges])
    memory = build_cogmem(
        CogMemSettings(**parts),
        count_tokens=model.count_tokens,
        new_encoder=lambda: encoder,
        load_agent=lambda name: model,
    )
    chat = CogMemChat(memory, model)
    for said, _ in exchanges[:EARLIER]:
        chat.respond(said)
    chat.end_session()
    costs = []
    messages: list[Message] = []
    for said, _ in exchanges[EARLIER:]:
        messages.append(Message("user", said))
        reply = chat.chat(messages)
        messages.append(Message("assistant", reply.text))
        costs.append(reply.prompt_tokens)
    memory.close()
    return costs


def summarise(costs: dict[str, list[list[int]]]) -> dict[str, Any]:
    """By variant: the mean cost of each turn, its growth over the second half, and its share of the baseline's."""
    means = {name: [mean(turn) for turn in zip(*rows, strict=True)] for name, rows in costs.items()}
    base = means["baseline"]
    summary = {}
    for name, turns in means.items():
        half = len(turns) // 2
        growth = np.polynomial.Polynomial.fit(range(half, len(turns)), turns[half:], 1).convert().coef[1]
        summary[name] = {
            "tokens_by_turn": [round(tokens, 1) for tokens in turns],
            "growth_per_turn": round(float(growth), 2),
            f"share_at_turn_{COMPARED_AT}": round(turns[COMPARED_AT - 1] / base[COMPARED_AT - 1], 3),
            "share_at_last_turn": round(turns[-1] / base[-1], 3),
        }
    return summary


def draw(summaries: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel for each length of turns, in it a line for each variant.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("the plot needs matplotlib: pip install -e '.[plots]'") from error
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
        figure = Figure(figsize=(9, 3.2))
        panels = figure.subplots(1, len(summaries), squeeze=False)[0]
        for axes, (length, summary) in zip(panels, summaries.items(), strict=True):
            for name, found in summary.items():
                turns = found["tokens_by_turn"]
                axes.plot(range(1, len(turns) + 1), turns, label=name)
            axes.set(title=f"{length} turns", xlabel="turn", ylabel="prompt tokens", ylim=(0, None))
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].legend(frameon=False)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")


def main() -> int:
    """Parse, measure, print and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cogmem_tokens", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--tokenizer", default="smollm2-135m", help="known name, local path or hub id")
    parser.add_argument("--limit", type=int, help="the first so many users only; nothing is written")
    arguments = parser.parse_args()
    tokenizer, encoder = load_tokenizer(arguments.tokenizer), SentenceEncoder("all-minilm-l6-v2")
    summaries = {}
    for length in TURNS:
        users = list(dialogues(length))[: arguments.limit]
        costs: dict[str, list[list[int]]] = {name: [] for name in VARIANTS}
        for exchanges in track(users, f"{length} turns", transient=True):
            for name, parts in VARIANTS.items():
                costs[name].append(prompt_tokens(exchanges, parts, tokenizer, encoder))
        summaries[length] = summarise(costs)
        Console().print(table(length, summaries[length]))
    if arguments.limit is None:
        draw(summaries, PLOT)
        write_json(
            RESULTS,
            {
                "tokens": summaries,
                "n_users": len(users),
                "tokenizer": arguments.tokenizer,
                "focus_tokens": CogMemSettings().focus_tokens,
                "agents": "rules",
                "machine": machine(),
                "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            },
        )
    return 0


def table(length: str, summary: dict[str, Any]) -> Table:
    """The figures that the docs quote."""
    shown = Table("variant", "first turn", f"turn {COMPARED_AT}", "last turn", "growth a turn", "share", title=length)
    for name, found in summary.items():
        turns = found["tokens_by_turn"]
        shown.add_row(
            name, *(f"{turns[place]:.0f}" for place in (0, COMPARED_AT - 1, -1)),
            f"{found['growth_per_turn']:.1f}", f"{found[f'share_at_turn_{COMPARED_AT}']:.2f}",
        )  # fmt: skip
    return shown


if __name__ == "__main__":
    run_script(main)
