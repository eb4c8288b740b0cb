"""Facts by a language model: one request for the facts of some turns, one for each fact that something similar is known of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

from mlmf.llm.chat import ChatModel
from mlmf.llm.structured import StructuredOutputError, ask_for
from mlmf.memory.entities import extract_by_rules
from mlmf.retrieval.dates import find_dates
from mlmf.systems.cognis.extract import Extractor
from mlmf.systems.cognis.prompts import decision_prompt, extraction_prompt
from mlmf.systems.cognis.records import Action, Candidate, Decision, Memory, Similar


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

    def candidates(self, messages: Sequence[Memory], known: Sequence[Memory]) -> list[Candidate]:
        """The facts of every part of the session that fits into the model's window."""
        return [candidate for part in self._parts(messages, known) for candidate in self._facts(part, known)]

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

    def _facts(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Iterator[Candidate]:
        speakers = tuple(dict.fromkeys(message.speaker for message in messages))
        reply = ask_for(self._model, extraction_prompt(messages, known), Facts, self._max_new_tokens)
        for fact in reply.facts:
            sources = [messages[number - 1] for number in fact.turns if 1 <= number <= len(messages)]
            if not sources:
                raise StructuredOutputError(
                    f"{self._model.name}: a fact of turns {fact.turns}, of {len(messages)} that were shown"
                )
            first = sources[0]
            yield Candidate(
                speaker=first.speaker,
                text=fact.text,
                said=first.said,
                session=first.session,
                position=first.position,
                turn_ids=tuple(turn_id for source in sources for turn_id in source.turn_ids),
                entities=extract_by_rules(fact.text, speakers),
                spans=tuple(mention.span for mention in find_dates(fact.text, first.said)),
            )

    def _parts(self, messages: Sequence[Memory], known: Sequence[Memory]) -> Iterator[Sequence[Memory]]:
        """Runs of messages whose prompt leaves room for the reply and for repairing it."""
        room = self._model.context_window - 3 * self._max_new_tokens
        part: list[Memory] = []
        for message in messages:
            prompt = extraction_prompt([*part, message], known)
            if part and sum(self._model.count_tokens(one.content) for one in prompt) > room:
                yield part
                part = []
            part.append(message)
        if part:
            yield part
