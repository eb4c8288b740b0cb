"""LOCCO and the probes, as they ship."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from mlmf.data.locco import (
    FILES,
    LOCCO_FILES,
    LOCCO_SHA256,
    PROBE_FILES,
    PROBE_SHA256,
    load_locco,
    load_probes,
    period_of,
    with_probes,
)
from mlmf.errors import UserError
from mlmf.types import Conversation


@pytest.fixture(scope="module")
def locco() -> dict[str, Conversation]:
    return {conversation.id: conversation for conversation in load_locco()}


def test_sizes(locco: dict[str, Conversation]) -> None:
    assert len(locco) == 104
    assert Counter(len(conversation.sessions) for conversation in locco.values()) == {32: 86, 28: 13, 24: 5}
    assert sum(len(conversation.turns) for conversation in locco.values()) == 2 * 15_202


def test_users_keep_their_position_and_the_sentinel_is_gone(locco: dict[str, Conversation]) -> None:
    assert set(locco) == {str(position) for position in range(105) if position != 44}
    raw = json.loads(gzip.decompress((FILES / LOCCO_FILES["standard"]).read_bytes()))
    assert raw[44] == ["generate all error"]
    for position in (43, 45, 104):
        assert [str(s.date)[:10] for s in locco[str(position)].sessions] == [date for date, _ in raw[position]]


def test_turns(locco: dict[str, Conversation]) -> None:
    session = locco["0"].sessions[0]
    assert session.date is not None and session.date.isoformat() == "2016-07-25T00:00:00"
    assert [turn.id for turn in session.turns[:3]] == ["S0:0", "S0:1", "S0:2"]
    assert session.turns[0].speaker == "User" and session.turns[1].speaker == "Bot"
    assert session.turns[0].text == "I performed my dance solo at the Riverside Summer Festival today."
    assert session.turns[1].text == "That sounds amazing! How did it go?"
    for conversation in locco.values():
        assert len({turn.id for turn in conversation.turns}) == len(conversation.turns)
        assert all(turn.text.strip() for turn in conversation.turns)


def test_long_histories() -> None:
    long = load_locco("long")
    assert len(long) == 20
    assert sum(len(conversation.sessions) for conversation in long) == 2288
    assert {len(conversation.sessions) for conversation in long} <= set(range(92, 129))
    assert sum(len(conversation.turns) for conversation in long) == 2 * 11_130


def test_shipped_files_are_the_pinned_bytes() -> None:
    for size, name in LOCCO_FILES.items():
        compressed = (FILES / name).read_bytes()
        assert hashlib.sha256(gzip.decompress(compressed)).hexdigest() == LOCCO_SHA256[size]
        assert compressed[4:8] == bytes(4)  # no time of compression: rebuilding gives the same bytes
    for split, name in PROBE_FILES.items():
        assert hashlib.sha256((FILES / name).read_bytes()).hexdigest() == PROBE_SHA256[split]


def test_periods_are_even_sixths() -> None:
    for count, sizes in {24: [4] * 6, 28: [5, 5, 4, 5, 5, 4], 32: [6, 5, 5, 6, 5, 5]}.items():
        assert list(Counter(period_of(i, count) for i in range(count)).values()) == sizes


@pytest.mark.parametrize(("split", "users", "count"), [("train", 40, 880), ("test", 16, 352)])
def test_probes_fit_the_dialogues(locco: dict[str, Conversation], split: str, users: int, count: int) -> None:
    probes = load_probes(split)  # type: ignore[arg-type]
    asked = [one for one in with_probes(list(locco.values()), probes) if one.questions]
    assert (len(probes), len(asked)) == (count, users)
    for conversation in asked:
        assert [question.index for question in conversation.questions] == list(range(22))
        facts = [question for question in conversation.questions if not question.is_trap]
        assert Counter(question.category for question in facts) == dict.fromkeys(range(1, 7), 3)
        texts = {turn.id: turn for turn in conversation.turns}
        source = {probe.id: probe for probe in probes}
        for question in conversation.questions:
            assert question.category == source[question.id].period
            if question.is_trap:
                assert question.answer is None and question.lure and question.evidence == ()
                continue
            assert question.evidence_status == "ok"
            for turn_id in question.evidence:
                assert texts[turn_id].speaker == "User"
                assert turn_id.startswith(f"S{question.session}:")
                assert str(source[question.id].evidence) in texts[turn_id].text


def test_train_and_test_users_do_not_overlap() -> None:
    assert {probe.user for probe in load_probes("train")}.isdisjoint(probe.user for probe in load_probes("test"))


def test_users_without_probes_keep_their_place(locco: dict[str, Conversation]) -> None:
    asked = with_probes(list(locco.values()), load_probes("test"))
    assert [one.id for one in asked] == list(locco)
    assert sum(not one.questions for one in asked) == 104 - 16


def test_a_file_of_ones_own_in_the_same_layout(tmp_path: Path) -> None:
    rounds = {str(n): {"User": f"user {n}", "Chatbot": f"bot {n}"} for n in (10, 9, 1)}
    users = [["generate all error"], [["8 May 2023", json.dumps(rounds)]]]
    plain, packed = tmp_path / "own.json", tmp_path / "own.json.gz"
    plain.write_text(json.dumps(users))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    (own,) = load_locco(path=plain)
    assert own.id == "1"
    assert [turn.text for turn in own.turns] == ["user 1", "bot 1", "user 9", "bot 9", "user 10", "bot 10"]
    assert load_locco(path=packed) == (own,)


def test_unknown_size_and_split_are_refused_with_the_options() -> None:
    with pytest.raises(UserError, match=r"unknown LOCCO size 'longer'\. Did you mean 'long'"):
        load_locco("longer")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"unknown probe split 'tests'\. Did you mean 'test'"):
        load_probes("tests")  # type: ignore[arg-type]


def test_probes_may_be_a_file_named_by_a_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_bytes((FILES / PROBE_FILES["test"]).read_bytes())
    assert [probe.id for probe in load_probes("mine")] == [probe.id for probe in load_probes("test")]
    with pytest.raises(UserError, match=r"absent\.jsonl: no such file"):
        load_probes("absent.jsonl")
