"""The abstention is said from its probability on, at the first word of an answer and nowhere else."""

from __future__ import annotations

import torch
from transformers import LogitsProcessorList

from mlmf.abstention import ABSTENTION
from mlmf.llm.abstaining import abstaining
from mlmf.llm.greedy import GreedyDecoder
from mlmf.tiny import tiny_model, tiny_tokenizer


def decide(processors: LogitsProcessorList, scores: torch.Tensor, tokens: int = 3) -> list[int]:
    ids = torch.zeros(len(scores), tokens, dtype=torch.long)
    return [int(i) for i in processors(ids, scores).argmax(-1)]  # type: ignore[arg-type]


def test_it_is_said_from_its_probability_on_whatever_is_likeliest() -> None:
    tokenizer = tiny_tokenizer()
    first = tokenizer(f" {ABSTENTION}", add_special_tokens=False)["input_ids"][0]
    other = first + 1
    scores = torch.full((2, len(tokenizer)), -30.0)
    scores[:, other], scores[:, first] = torch.tensor([0.6, 0.8]).log(), torch.tensor([0.4, 0.2]).log()
    assert decide(abstaining(0.3, tokenizer, 3), scores) == [first, other]
    assert decide(abstaining(0.3, tokenizer, 3), scores.flip(0)) == [other, first]
    # the likeliest word of many, and still not likely enough
    scores[:, other : other + 3] = torch.tensor(0.2).log()
    assert int(scores[0].argmax()) == first and decide(abstaining(0.5, tokenizer, 3), scores) == [other, other]
    assert decide(abstaining(0.3, tokenizer, 3), scores, tokens=4) == decide(LogitsProcessorList(), scores)
    assert not abstaining(None, tokenizer, 3)


def test_another_way_of_writing_it_is_the_same_abstention() -> None:
    tokenizer = tiny_tokenizer()
    said, small = (tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in (f" {ABSTENTION}", "not"))
    other = next(i for i in range(len(tokenizer)) if i not in (said, small))
    scores = torch.full((1, len(tokenizer)), -30.0)
    scores[:, [said, small, other]] = torch.tensor([0.25, 0.35, 0.4]).log()
    assert said != small
    assert decide(abstaining(0.5, tokenizer, 3), scores) == [said]  # together 0.6
    assert decide(abstaining(0.7, tokenizer, 3), scores) == [other]


def test_a_decoder_begins_every_answer_or_none_with_it() -> None:
    tokenizer, model = tiny_tokenizer(), tiny_model()
    rows = [list(tokenizer(text).input_ids) for text in ("who was it", "and when")]
    first = tokenizer.decode(tokenizer(f" {ABSTENTION}", add_special_tokens=False)["input_ids"][0])
    for probability, begins in ((0.0, True), (1.0, False)):
        decoder = GreedyDecoder(model, tokenizer, max_batch_tokens=999, abstain_from=probability)
        assert [one.text.startswith(first) for one in decoder.write(rows, 6)] == [begins] * 2
