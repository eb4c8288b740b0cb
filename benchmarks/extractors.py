"""What do the extractors of CogMem and Cognis take from a session? The rules beside a language model, on LOCCO.

    python -m benchmarks.extractors --model smollm2-135m --sessions 2

The first sessions of a test user that hold the evidence of a question go through the real ingestion of each system, once
with ``extractor: rules`` and once with ``extractor: llm``. Reported: how many replies were valid JSON at once, or after their
one repair (with the extra ``guided`` decoding is held to the schema); how many statements came of it (facts; notes and
insights); the share of the words of the gold answers that stand in a statement; the share of the words of the statements
that nobody said. Writes ``results/extractors.json``.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from benchmarks.addressing import with_evidence
from benchmarks.machine import machine
from mlmf.base_model import load_base
from mlmf.config.cogmem import CogMemSettings
from mlmf.config.cognis import CognisSettings
from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.evaluation.official import stems
from mlmf.evaluation.results import write_json
from mlmf.evaluation.statistics import mean
from mlmf.llm.chat import ChatModel, DelegatingChatModel, Message, Reply
from mlmf.llm.local_chat import LocalChatModel
from mlmf.llm.structured import parse
from mlmf.retrieval.encoder import Encoder, SentenceEncoder
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.records import Said, open_notes
from mlmf.systems.cognis.extract import RuleExtractor
from mlmf.systems.cognis.extract_llm import LLMExtractor
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.types import Conversation, Session, format_date

RESULTS = Path("results/extractors.json")
SHOWN = 8
"""Statements of each kind that the results keep, for people to look at."""


class CountedReplies(DelegatingChatModel):
    """Another model's replies, counted: how often JSON was asked for, and how often it came."""

    def __init__(self, model: ChatModel) -> None:
        """Ask ``model``."""
        super().__init__(model)
        self.counts = {"asked": 0, "valid_at_once": 0, "valid_when_repaired": 0}

    def chat(
        self, conversations: Sequence[Sequence[Message]], max_new_tokens: int, *, schema: type[BaseModel] | None = None
    ) -> list[Reply]:
        """The model's replies."""
        replies = self._model.chat(conversations, max_new_tokens, schema=schema)
        for conversation, reply in zip(conversations, replies, strict=True) if schema else ():
            is_repair = any(message.role == "assistant" for message in conversation)
            self.counts["asked"] += not is_repair
            self.counts["valid_when_repaired" if is_repair else "valid_at_once"] += is_valid(reply.text, schema)
        return replies


def is_valid(reply: str, schema: type[BaseModel] | None) -> bool:
    """Whether a reply can be read as what was asked for."""
    assert schema is not None
    try:
        parse(reply, schema)
    except ValidationError:
        return False
    return True


def cognis_facts(sessions: Sequence[Session], encoder: Encoder, model: ChatModel | None, *, tokens: int) -> list[str]:
    """The facts that Cognis keeps of some sessions."""
    extractor = LLMExtractor(model, max_new_tokens=tokens) if model else RuleExtractor()
    memory = CognisMemory(encoder, encoder_name="encoder", settings=CognisSettings(), extractor=extractor)
    for session in sessions:
        memory.add("user", session)
    facts = [fact.text for fact in memory.known_on("user", datetime.max)]
    memory.close()
    return facts


def cogmem_statements(
    sessions: Sequence[Session], encoder: Encoder, model: ChatModel | None, tokens: int
) -> list[str]:
    """The notes and insights that CogMem keeps of some sessions, each of which ends with a review."""
    settings = CogMemSettings(extractor="llm" if model else "rules", agent_tokens=tokens)

    def agent(name: str) -> ChatModel:
        assert model is not None
        return model

    memory = build_cogmem(settings, count_tokens=len, new_encoder=lambda: encoder, load_agent=agent)
    stand = memory.sessions.begin("user")
    for session in sessions:
        known = len(memory.read("user", stand.head))
        for turn in session.turns:
            said = Said(header=f"[{format_date(session.date)}] {turn.speaker}:", text=turn.content)
            stand, _ = memory.add("user", stand, [said], label=turn.id)
        memory.review("user", memory.read("user", stand.head)[known:])
    notes = open_notes(memory.read("user", stand.head))
    assert memory.long_term is not None
    insights = memory.long_term.insights("user").values()
    memory.close()
    return [*(note.text for note in notes), *(insight.text for insight in insights)]


def chosen_sessions(conversation: Conversation, count: int) -> list[Session]:
    """The first sessions with the evidence of a question in them."""
    held = {turn_id for question in with_evidence(conversation) for turn_id in question.evidence}
    return [one for one in conversation.sessions if held & {turn.id for turn in one.turns}][:count]


def quality(statements: Sequence[str], conversation: Conversation, sessions: Sequence[Session]) -> dict[str, Any]:
    """What statements keep of the answers, and what they make up."""
    there = {turn.id for session in sessions for turn in session.turns}
    kept = _stems(statements)
    said = _stems(f"{turn.speaker} {turn.content} {format_date(s.date)}" for s in sessions for turn in s.turns)
    asked = [one for one in with_evidence(conversation) if one.answer and there.issuperset(one.evidence)]
    answers = [set(stems(one.answer or "")) for one in asked]
    words = [stem for statement in statements for stem in stems(statement)]
    return {
        "statements": len(statements),
        "answer_words_kept": mean(len(answer & kept) / len(answer) for answer in answers if answer),
        "words_made_up": mean(float(word not in said) for word in words),
        "examples": list(statements[:SHOWN]),
    }


def _stems(texts: Iterable[str]) -> set[str]:
    return {stem for text in texts for stem in stems(text)}


def main() -> int:
    """Parse, extract, print and write."""
    logging.getLogger("mlmf").setLevel(logging.ERROR)  # a reply that failed is counted here
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.extractors", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--model", default="smollm2-135m", help="chat model: known name, local path or hub id")
    parser.add_argument("--encoder", default="all-minilm-l6-v2", help="as in evaluate.py")
    parser.add_argument("--sessions", type=int, default=2, help="how many sessions are read")
    parser.add_argument(
        "--cognis_tokens", type=int, default=512, help="longest reply to Cognis: all facts of a session"
    )
    parser.add_argument(
        "--cogmem_tokens", type=int, default=128, help="longest reply to CogMem: mostly one turn's notes"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="file that is written")
    arguments = parser.parse_args()
    conversation = load_task("locco", split="test").conversations[0]
    sessions = chosen_sessions(conversation, arguments.sessions)
    encoder = SentenceEncoder(arguments.encoder)
    model = LocalChatModel(*load_base(arguments.model), name=arguments.model)
    table = Table(
        "system",
        "extractor",
        "JSON asked",
        "valid at once",
        "repaired",
        "statements",
        "answer words kept",
        "made up",
        "s",
    )
    facts = {
        name: getattr(arguments, name) for name in ("model", "encoder", "sessions", "cognis_tokens", "cogmem_tokens")
    }
    facts |= {"is_guided": model.is_guided, "turns": sum(len(session.turns) for session in sessions)}
    results: dict[str, dict[str, Any]] = {}
    systems = {
        "cognis": partial(cognis_facts, tokens=arguments.cognis_tokens),
        "cogmem": partial(cogmem_statements, tokens=arguments.cogmem_tokens),
    }
    for system, extract in systems.items():
        for name in ("rules", "llm"):
            counted = CountedReplies(model) if name == "llm" else None
            started = time.perf_counter()
            statements = extract(sessions, encoder, counted)
            seconds = round(time.perf_counter() - started, 1)
            found = quality(statements, conversation, sessions) | {"seconds": seconds}
            if counted:
                found["json"] = counted.counts
            results.setdefault(system, {})[name] = found
            counts = [str(count) for count in counted.counts.values()] if counted else ["-"] * 3
            shares = [f"{found[key]['mean'] or 0:.2f}" for key in ("answer_words_kept", "words_made_up")]
            table.add_row(system, name, *counts, str(found["statements"]), *shares, f"{seconds:.0f}")
            created = datetime.now(timezone.utc).isoformat(timespec="seconds")
            # after each, since a model may take long
            write_json(arguments.output, {**results, **facts, "machine": machine(), "created_at": created})
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    run_script(main)
