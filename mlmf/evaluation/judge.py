"""A language model as judge of answers: the column J, optional, and never mixed with any lexical score.

A verdict is one word. Anything else is no verdict: it is counted and left out of J, and never read as either word. Traps
are not judged: there is no gold answer to compare with, and whether a system abstains is read from its words, with rules
that no judge's leniency can move.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlmf.config.evaluation import EvalConfig
from mlmf.evaluation.consistency import Claim, Verdict
from mlmf.evaluation.judge_prompts import PROMPT_VERSION, judge_messages
from mlmf.evaluation.progress import progress_bar
from mlmf.llm.chat import ChatError, ChatModel
from mlmf.llm.load import load_chat_model

CACHE_FILE = "judge.sqlite"
_WORDS = {"CORRECT": True, "WRONG": False, "INCORRECT": False}
# whole words: "INCORRECT" ends in "CORRECT", and "not correct" holds it
_ALONE = re.compile(rf"[\W_]*({'|'.join(_WORDS)})[\W_]*", re.IGNORECASE)
_CAPITALS = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_SHOWN_CHARACTERS = 80


class LLMJudge:
    """Judges with a chat model, in batches; a :class:`~mlmf.evaluation.consistency.ConsistencyJudge`."""

    def __init__(self, model: ChatModel, *, max_new_tokens: int = 16, batch_size: int = 16) -> None:
        """Judge with ``model``.

        Args:
            model: reads question, gold answer and answer.
            max_new_tokens: room for the verdict.
            batch_size: answers given to the model together.
        """
        self.name = f"{model.name}, prompt {PROMPT_VERSION}"
        self._model = model
        self._max_new_tokens = max_new_tokens
        self._batch_size = batch_size

    def judge(self, claims: Sequence[Claim]) -> list[Verdict]:
        """One verdict per answer; where the model gives none, the reason."""
        verdicts: list[Verdict] = []
        with progress_bar(f"judged by {self._model.name}", len(claims)) as advance:
            for start in range(0, len(claims), self._batch_size):
                batch = claims[start : start + self._batch_size]
                verdicts += self._judge(batch)
                advance(len(batch))
        return verdicts

    def _judge(self, claims: Sequence[Claim]) -> Iterator[Verdict]:
        try:
            replies = self._model.chat([judge_messages(claim) for claim in claims], self._max_new_tokens)
        except ChatError as error:
            if len(claims) == 1:
                yield Verdict(None, str(error))
            else:
                # one that fails must not cost the others of its batch their verdicts
                for claim in claims:
                    yield from self._judge([claim])
            return
        for reply in replies:
            verdict = read_verdict(reply.text)
            reason = None if verdict is not None else f"no verdict: {reply.text[:_SHOWN_CHARACTERS]!r}"
            yield Verdict(verdict, reason)


def read_verdict(reply: str) -> bool | None:
    """Whether a reply says CORRECT (true) or WRONG or INCORRECT (false); ``None`` where it does not say which.

    The first line must be that one word, whatever case and punctuation; words in capitals below must not contradict it.
    What a model thinks aloud first, up to ``</think>``, is not read.
    """
    said = reply.rpartition("</think>")[2].strip()
    opening = _ALONE.fullmatch(said.partition("\n")[0])
    if opening is None:
        return None
    verdict = _WORDS[opening[1].upper()]
    return verdict if all(_WORDS[word] == verdict for word in _CAPITALS.findall(said)) else None


def load_judge(config: EvalConfig) -> LLMJudge | None:
    """The LLM judge of a run, with its verdicts kept beside the answers; ``None`` for a run without one.

    Raises:
        UserError: its model cannot be loaded.
    """
    if config.judge is None:
        return None
    settings = replace(config.judge_llm, cache=config.judge_llm.cache or str(Path(config.output_dir) / CACHE_FILE))
    model = load_chat_model(settings, device=config.device, prompt_version=PROMPT_VERSION)
    return LLMJudge(model, max_new_tokens=settings.max_new_tokens, batch_size=config.batch_size)


def describe_judge(config: EvalConfig, accuracy: dict[str, Any] | None) -> dict[str, Any] | None:
    """What results say about the judge of a run: ``prompt_version``, ``model`` with its server, and its ``accuracy``.

    Args:
        config: of the run.
        accuracy: as :func:`mlmf.evaluation.consistency.judge_accuracy` gives it, where there are labels.
    """
    if config.judge is None:
        return None
    return {**config.judge_llm.described, "prompt_version": PROMPT_VERSION, "accuracy": accuracy}
