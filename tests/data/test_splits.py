"""Folds by conversation: each conversation is tested once, the same on every machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.data.splits import k_folds, main
from mlmf.errors import UserError


@settings(deadline=None)
@given(st.sets(st.text(min_size=1), min_size=2, max_size=30), st.integers(2, 8), st.integers(0, 5))
def test_every_conversation_is_tested_once_and_trained_on_otherwise(ids: set[str], folds: int, seed: int) -> None:
    listed = sorted(ids)
    folds = min(folds, len(listed))
    found = k_folds(listed, folds, seed=seed)
    assert sorted(one for fold in found for one in fold.test) == listed
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == listed
    sizes = [len(fold.test) for fold in found]
    assert max(sizes) - min(sizes) <= 1


def test_folds_depend_on_the_seed_and_not_on_the_order() -> None:
    ids = [f"conv-{number}" for number in range(10)]
    assert [set(fold.test) for fold in k_folds(ids, 5)] == [set(fold.test) for fold in k_folds(ids[::-1], 5)]
    assert k_folds(ids, 5, seed=0) != k_folds(ids, 5, seed=1)
    # written down once: a change here would change everybody's folds
    assert k_folds(ids, 5)[0].test == ("conv-4", "conv-7")


@pytest.mark.parametrize(
    ("ids", "folds", "message"),
    [
        (["a", "b"], 3, "must be 2 to 2, the number of conversations, got 3"),
        (["a", "b"], 1, "got 1"),
        (["a", "a"], 2, "twice"),
    ],
)
def test_impossible_folds_are_refused(ids: list[str], folds: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        k_folds(ids, folds)


def test_the_command_prints_settings_of_the_two_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locco", "--folds", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("fold")] == ["fold 0", "fold 1", "fold 2", "fold 3"]
    train, test = lines[1].split(" --conversations ")[1].split(), lines[2].split(" --conversations ")[1].split()
    assert (len(train), len(test)) == (12, 4)
    assert main(["locco", "--folds", "40"]) == 2
    assert capsys.readouterr().err == "error: folds: must be 2 to 16, the number of conversations, got 40\n"
