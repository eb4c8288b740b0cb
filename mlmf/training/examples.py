"""Conversations to training examples: what is remembered, what is asked, what should be said. Tokenised and cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset, disable_progress_bars, enable_progress_bars, load_from_disk
from transformers import PreTrainedTokenizerBase

from mlmf.abstention import ABSTENTION
from mlmf.config.training import Objective
from mlmf.errors import UserError
from mlmf.memory.losses import Evidence
from mlmf.paths import atomic_folder
from mlmf.training.cloze import Gap, session_gaps
from mlmf.types import Conversation, Query, Question, Session, answer_prompt

VERSION = 3
"""Part of the cache key: raise it when the meaning of an example changes."""


@dataclass(frozen=True)
class Example:
    """One prompt and its target, by text.

    ``needed`` are the sessions that must be in memory; ``pool`` is how many of the conversation's first sessions may
    be (a reply sees only what came before it). ``evidence`` is what the find step should find.
    """

    conversation: int
    needed: tuple[int, ...]
    pool: int
    query: str
    prompt: str
    target: str
    evidence: Evidence = None


def build_examples(
    conversations: Sequence[Conversation],
    objectives: Sequence[Objective],
    *,
    max_reply_turns: int = 6,
    gaps_per_session: int = 3,
    seed: int = 0,
) -> list[Example]:
    """Every example of the wanted objectives, in the order of the data.

    Args:
        conversations: what is talked about, and the questions about it.
        objectives: kinds of examples.
        max_reply_turns: turns of the running session before a reply.
        gaps_per_session: clozes at most.
        seed: of the gaps.

    Raises:
        UserError: there is nothing to train on.
    """
    examples: list[Example] = []
    for number, conversation in enumerate(conversations):
        if "answer" in objectives:
            examples += [_answer(number, conversation, question) for question in conversation.questions]
        if "cloze" in objectives:
            for session in conversation.sessions:
                gaps = session_gaps(conversation, session, conversations, gaps_per_session, seed)
                examples += [_cloze(number, len(conversation.sessions), gap) for gap in gaps]
        if "reply" in objectives:
            for session in conversation.sessions[1:]:
                examples += _replies(number, session, max_reply_turns)
    if not examples:
        raise UserError(
            f"nothing to train on: {len(conversations)} conversations gave no example of {', '.join(objectives)}. "
            "answer needs questions, reply at least two sessions, cloze sentences of seven words"
        )
    return examples


def _answer(number: int, conversation: Conversation, question: Question) -> Example:
    place = {turn.id: (s.index, i) for s in conversation.sessions for i, turn in enumerate(s.turns)}
    told = sorted({place[turn] for turn in question.evidence if turn in place})
    needed = {session for session, _ in told}
    if question.session is not None:
        needed.add(question.session)
    prompt, pool = answer_prompt(question.query), len(conversation.sessions)
    if question.is_trap or question.answer is None:
        # turns that the data names here are what misleads
        return Example(number, tuple(sorted(needed)), pool, question.text, prompt, ABSTENTION, evidence=())
    evidence = tuple(told) or None
    return Example(number, tuple(sorted(needed)), pool, question.text, prompt, question.answer, evidence)


def _cloze(number: int, pool: int, gap: Gap) -> Example:
    needed = () if gap.place is None else (gap.place[0],)
    prompt = answer_prompt(Query(gap.question))
    if gap.answer is None or gap.place is None:
        return Example(number, needed, pool, gap.question, prompt, ABSTENTION, evidence=())
    return Example(number, needed, pool, gap.question, prompt, gap.answer, (gap.place,))


def _replies(number: int, session: Session, max_turns: int) -> Iterator[Example]:
    """Each turn but the first of a session, given the turns before it and the memory of earlier sessions."""
    for i in range(1, len(session.turns)):
        turn = session.turns[i]
        context = "".join(f"{t.speaker}: {t.content}\n" for t in session.turns[max(0, i - max_turns) : i])
        if turn.content:
            yield Example(number, (), session.index, context.strip(), f"{context}{turn.speaker}:", turn.content)


def tokenise(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    cache: Path,
    *,
    max_prompt_tokens: int,
    max_target_tokens: int,
) -> tuple[Dataset, str]:
    """Examples as ids, from ``cache`` if the same ones were tokenised before, and the hash of their content.

    Columns: ``conversation``, ``needed``, ``pool``, and the id lists ``query``, ``prompt`` (its last
    ``max_prompt_tokens``) and ``target``, which ends with the end-of-text token, and ``evidence`` as pairs or null.
    """
    content = json.dumps([asdict(example) for example in examples], sort_keys=True)
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    settings = f"{VERSION} {max_prompt_tokens} {max_target_tokens} {tokenizer.eos_token_id}"
    key = hashlib.sha256("\n".join([content, vocabulary, settings]).encode()).hexdigest()[:16]
    folder = cache / "examples" / key
    if not folder.exists():
        rows = [_ids(example, tokenizer, max_prompt_tokens, max_target_tokens) for example in examples]
        disable_progress_bars()
        with atomic_folder(folder) as partial:
            Dataset.from_list(rows).save_to_disk(str(partial))
        enable_progress_bars()
    return load_from_disk(str(folder)), key


def target_ids(text: str, tokenizer: PreTrainedTokenizerBase, limit: int) -> list[int]:
    """Ids of what is to be said after a prompt, and of its end, at most ``limit``."""
    ids: list[int] = tokenizer(" " + text.strip(), add_special_tokens=False)["input_ids"]
    return [*ids[: limit - 1], tokenizer.eos_token_id]


def _ids(example: Example, tokenizer: PreTrainedTokenizerBase, max_prompt: int, max_target: int) -> dict[str, object]:
    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    return {
        "conversation": example.conversation,
        "needed": list(example.needed),
        "pool": example.pool,
        "query": encode(example.query)[-max_prompt:],
        "prompt": encode(example.prompt)[-max_prompt:],
        "target": target_ids(example.target, tokenizer, max_target),
        "evidence": None if example.evidence is None else [list(pair) for pair in example.evidence],
    }
