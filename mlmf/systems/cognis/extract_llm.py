"""Facts by a language model: one request for the facts of some turns, one for each fact that something similar is known of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

from mlmf.llm.chat import ChatModel, Message
from mlmf.llm.structured import StructuredOutputError, ask_for, says_something
from mlmf.memory.entities import extract_by_rules
from mlmf.retrieval.dates import find_dates
from mlmf.systems.cognis.extract import Extractor
from mlmf.systems.cognis.prompts import decision_prompt, extraction_prompt
from mlmf.systems.cognis.records import Action, Candidate, Decision, Extraction, Memory, Similar


class Fact(BaseModel):
    """A fact, and the numbers of the turns it comes from."""

    text: str = Field(min_length=1)
    turns: list[int] = Field(min_length=1)


class Facts(BaseModel):
    """The facts of some turns."""

    facts: list[Fact]


class Verdict(BaseModel):
    """What becomes of a fact."""

    action: Action
    number: int | None = None


class LLMExtractor(Extractor):
    """Extraction and decisions by a chat model, as structured output."""

    def __init__(self, model: ChatModel, *, max_new_tokens: int = 512, least: float = 0.4) -> None:
        """Use a chat model.

        Args:
            model: what is asked.
            max_new_tokens: the longest reply; a session is read in parts of which facts and prompt fit its window.
            least: cosine from which a known fact is worth asking about; without one, a fact is added unasked.
        """
        self._model, self._max_new_tokens, self._least = model, max_new_tokens, least

    def extract(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Extraction:
        """The facts of every part of the session that fits into the model's window; a part that fails costs no other."""
        found: list[Candidate] = []
        failures: list[str] = []
        for part in self._parts(messages, known):
            prompt = extraction_prompt(part, known)
            if self._tokens(prompt) > self._room:
                failures.append(
                    f"a prompt of {self._tokens(prompt)} tokens, where {self._model.name} has room for {self._room}"
                )
                continue
            try:
                reply = ask_for(self._model, prompt, Facts, self._max_new_tokens)
            except StructuredOutputError as error:
                failures.append(str(error))
                continue
            for fact in reply.facts:
                sources = [part[number - 1] for number in fact.turns if 1 <= number <= len(part)]
                if sources and says_something(fact.text):
                    found.append(_candidate(fact, sources, part))
                else:
                    failures.append(
                        f"{self._model.name}: {fact.text!r} as a fact of turns {fact.turns}, of {len(part)} that were shown"
                    )
        return Extraction(tuple(found), tuple(failures))

    def decide(self, candidate: Candidate, similar: Sequence[Similar]) -> Decision:
        """What the model says, about a known fact where it needs one."""
        near = [one for one in similar if one.score >= self._least]
        if not near:
            return Decision("ADD")
        verdict = ask_for(self._model, decision_prompt(candidate, near), Verdict, self._max_new_tokens)
        if verdict.action in ("ADD", "NONE"):
            return Decision(verdict.action)
        if verdict.number is None or not 1 <= verdict.number <= len(near):
            raise StructuredOutputError(
                f"{self._model.name}: {verdict.action} of fact {verdict.number}, of {len(near)} that are known"
            )
        return Decision(verdict.action, near[verdict.number - 1].memory)

    @property
    def _room(self) -> int:
        """The most tokens of a prompt: beside it stand a reply, why it was refused, and its repair."""
        return self._model.context_window - 3 * self._max_new_tokens

    def _tokens(self, prompt: Sequence[Message]) -> int:
        return sum(self._model.count_tokens(message.content) for message in prompt)

    def _parts(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Iterator[Sequence[Memory]]:
        """Runs of messages whose prompt fits, as far as single messages do."""
        part: list[Memory] = []
        for message in messages:
            if part and self._tokens(extraction_prompt([*part, message], known)) > self._room:
                yield part
                part = []
            part.append(message)
        if part:
            yield part


def _candidate(fact: Fact, sources: Sequence[Memory], messages: Sequence[Memory]) -> Candidate:
    """A fact as it is held against what is known; it was said where its first turn was."""
    first = sources[0]
    return Candidate(
        speaker=first.speaker,
        text=fact.text,
        said=first.said,
        session=first.session,
        position=first.position,
        turn_ids=tuple(turn_id for source in sources for turn_id in source.turn_ids),
        entities=extract_by_rules(fact.text, tuple(dict.fromkeys(message.speaker for message in messages))),
        spans=tuple(mention.span for mention in find_dates(fact.text, first.said)),
    )
