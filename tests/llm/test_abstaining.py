"""The abstention is said from its probability on, at the first word of an answer and nowhere else."""

from __future__ import annotations

import pytest
import torch

from mlmf.llm.abstaining import AbstainFrom, abstaining
from mlmf.llm.greedy import GreedyDecoder
from mlmf.tiny import tiny_model, tiny_tokenizer

SAID, SMALL, OTHER, BLANK, WORDS = 1, 2, 3, 4, 9


def scores(**probabilities: float) -> torch.Tensor:
    """What a model thinks of the next token, by name."""
    made = torch.full((1, WORDS), -30.0)
    for name, value in probabilities.items():
        made[0, globals()[name]] = torch.tensor(value).log()
    return made


def decide(processor: AbstainFrom, said: torch.Tensor, tokens: int = 3, last: int = 0) -> int:
    ids = torch.full((1, tokens), last)
    return int(processor(ids, said).argmax())  # type: ignore[arg-type]


def test_it_is_said_from_its_probability_on_whatever_is_likeliest() -> None:
    rule = AbstainFrom(0.3, [SAID, SMALL], 3)
    assert decide(rule, scores(SAID=0.4, OTHER=0.6)) == SAID
    assert decide(rule, scores(SAID=0.2, OTHER=0.8)) == OTHER
    # the likeliest word of many, and still not likely enough
    assert decide(AbstainFrom(0.5, [SAID, SMALL], 3), scores(SAID=0.4, OTHER=0.3, BLANK=0.3)) == OTHER
    # only the first word of an answer is decided
    assert decide(rule, scores(SAID=0.4, OTHER=0.6), tokens=4) == OTHER


def test_another_way_of_writing_it_is_the_same_abstention() -> None:
    many = scores(SAID=0.25, SMALL=0.35, OTHER=0.4)
    assert decide(AbstainFrom(0.5, [SAID, SMALL], 3), many) == SAID  # together 0.6
    assert decide(AbstainFrom(0.7, [SAID, SMALL], 3), many) == OTHER


def test_where_a_blank_is_a_token_of_its_own_the_word_after_it_is_decided() -> None:
    rule = AbstainFrom(0.3, [SAID], 3, blank=BLANK)
    likely = scores(SAID=0.4, OTHER=0.6)
    assert decide(rule, likely, tokens=3) == OTHER
    assert decide(rule, likely, tokens=4, last=BLANK) == SAID
    assert decide(rule, likely, tokens=4, last=OTHER) == OTHER


def test_the_tokens_are_those_of_the_tokenizer() -> None:
    tokenizer = tiny_tokenizer()  # a blank is a token of its own there
    assert not abstaining(None, tokenizer, 3)
    (rule,) = abstaining(0.5, tokenizer, 3)
    assert tokenizer.decode([rule.blank]) == " " and [tokenizer.decode([i]) for i in rule.first] == ["N", "n"]
    assert rule.place == 4


@pytest.mark.parametrize(("probability", "begins"), [(0.0, True), (1.0, False)])
def test_a_decoder_begins_every_answer_after_a_blank_or_none_with_it(probability: float, begins: bool) -> None:
    tokenizer, model = tiny_tokenizer(), tiny_model()
    blank = tokenizer(" ", add_special_tokens=False)["input_ids"][0]

    def blank_first(module: object, args: object, kwargs: dict[str, torch.Tensor], output: object) -> None:
        if kwargs["input_ids"].shape[1] > 1:  # reading the prompts
            output.logits[:, -1, blank] = 1e3  # type: ignore[attr-defined]

    model.register_forward_hook(blank_first, with_kwargs=True)
    rows = [list(tokenizer(text).input_ids) for text in ("who was it", "and when")]
    decoder = GreedyDecoder(model, tokenizer, max_batch_tokens=999, abstain_from=probability)
    assert [one.text.startswith(" N") for one in decoder.write(rows, 3)] == [begins] * 2
