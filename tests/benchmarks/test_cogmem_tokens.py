"""What the token benchmark counts: all that was said for the baseline, a bounded window for CogMem."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.cogmem_tokens import COMPARED_AT, EARLIER, TURNS, VARIANTS, dialogues, draw, prompt_tokens, summarise
from mlmf.tiny import tiny_tokenizer
from tests.systems.cogmem.doubles import WORDS
from tests.systems.doubles import WordEncoder

BASELINE, FULL = "baseline", "+ FoA + DA + LTM"


@pytest.fixture(scope="module")
def costs() -> dict[str, list[list[int]]]:
    exchanges = next(dialogues("short"))[: EARLIER + COMPARED_AT]
    encoder, tokenizer = WordEncoder(*WORDS), tiny_tokenizer()
    return {name: [prompt_tokens(exchanges, VARIANTS[name], tokenizer, encoder)] for name in (BASELINE, FULL)}


def test_the_baseline_reads_every_turn_again_and_cogmem_does_not(costs: dict[str, list[list[int]]]) -> None:
    (baseline,) = costs[BASELINE]
    exchanges = next(dialogues("short"))[EARLIER : EARLIER + COMPARED_AT]
    tokenizer = tiny_tokenizer()
    said = [len(tokenizer(a + b, add_special_tokens=False).input_ids) for a, b in exchanges]
    grown = [later - earlier for earlier, later in pairwise(baseline)]
    asked = [len(tokenizer(a, add_special_tokens=False).input_ids) for a, _ in exchanges]
    for turn, growth in enumerate(grown):
        # the exchange before, and the new input in place of the last; the rest is the chat template's
        assert growth == pytest.approx(said[turn] + asked[turn + 1] - asked[turn], abs=40)
    assert max(costs[FULL][0]) < 2_000 < max(baseline)


def test_every_user_has_as_many_turns_as_are_said() -> None:
    short, long = list(dialogues("short")), list(dialogues("long"))
    assert {len(turns) for turns in short} == {EARLIER + TURNS["short"]}
    assert {len(turns) for turns in long} == {EARLIER + TURNS["long"]}
    assert len(short) == len(long) == 16
    assert long[0][0][0].startswith(short[0][0][0]) and len(long[0][0][0]) > 2 * len(short[0][0][0])


def test_the_summary_is_the_mean_its_slope_and_its_share(tmp_path: Path) -> None:
    rows = {"baseline": [[10 * n for n in range(1, 21)], [30 * n for n in range(1, 21)]], "small": [[60] * 20]}
    summary = summarise(rows)
    assert summary["baseline"]["tokens_by_turn"][:2] == [20, 40]
    assert (summary["baseline"]["growth_per_turn"], summary["small"]["growth_per_turn"]) == (20, 0)
    assert (summary["small"][f"share_at_turn_{COMPARED_AT}"], summary["small"]["share_at_last_turn"]) == (0.2, 0.15)
    draw({"short": summary}, tmp_path / "plot.svg")
    assert "prompt tokens" in (tmp_path / "plot.svg").read_text()
