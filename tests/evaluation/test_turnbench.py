from __future__ import annotations

from collections.abc import Iterable

import pytest

from mlmf.data.turnbench import HOW_TO_GET, RULES_FILE, SETUPS_FILE, Setup, Verifier, load_setups
from mlmf.data.turnbench_rules import CODES
from mlmf.evaluation.turnbench_game import (
    MAX_RETRIES,
    play,
    read_code,
    read_code_or_skip,
    read_verifier,
    show_code,
)
from mlmf.evaluation.turnbench_players import EnumerationPlayer, RandomPlayer
from tests.data.conftest import found_or_skip

SETUP = Setup(
    "tiny",
    "easy",
    (
        Verifier(("BLUE < 3", "BLUE = 3", "BLUE > 3"), 1),
        Verifier(("BLUE = YELLOW", "YELLOW = PURPLE", "BLUE = PURPLE"), 1),
        Verifier(("sum=6", "sum multiple of 5", "BLUE > YELLOW"), 1),
        Verifier(("strictly ascending", "BLUE > YELLOW"), 1),
    ),
    (3, 1, 1),
)


class Scripted:
    """Replies from a list, and keeps the turns."""

    def __init__(self, replies: Iterable[str]) -> None:
        self.replies, self.turns = iter(replies), list[str]()

    def respond(self, turn: str) -> str:
        self.turns.append(turn)
        return next(self.replies)


def test_a_game_told_turn_by_turn() -> None:
    player = Scripted(
        [
            "BLUE=1 YELLOW=2 PURPLE=3",
            "VERIFIER 0",
            "VERIFIER 3",
            "SKIP",
            "SKIP",
            "BLUE=3 YELLOW=1 PURPLE=1",
            "VERIFIER 0",
            "VERIFIER 1",
            "VERIFIER 2",
            "BLUE=3 YELLOW=1 PURPLE=1",
        ]
    )
    game = play(SETUP, player)
    assert (game.outcome, game.rounds, game.queries, game.retries) == ("won", 2, 5, 0)
    opening = player.turns[0]
    assert "Verifier 3: strictly ascending | BLUE > YELLOW" in opening and opening.endswith(
        "BLUE=1 YELLOW=2 PURPLE=3."
    )
    news = [turn.splitlines()[0] for turn in player.turns if turn.startswith("Verifier")]
    assert news == [
        "Verifier 0 on BLUE=1 YELLOW=2 PURPLE=3: FAIL",
        "Verifier 3 on BLUE=1 YELLOW=2 PURPLE=3: FAIL",
        "Verifier 0 on BLUE=3 YELLOW=1 PURPLE=1: PASS",
        "Verifier 1 on BLUE=3 YELLOW=1 PURPLE=1: PASS",
        "Verifier 2 on BLUE=3 YELLOW=1 PURPLE=1: PASS",
    ]


def test_a_turn_never_tells_the_secret() -> None:
    player = Scripted(["BLUE=1 YELLOW=1 PURPLE=1", "SKIP", "SKIP"] * 20)
    assert play(SETUP, player).outcome == "out_of_rounds"
    assert len(player.turns) == 60
    other = Setup("tiny", "easy", tuple(Verifier(one.criteria, 0) for one in SETUP.verifiers), (1, 1, 1))
    again = Scripted(["BLUE=1 YELLOW=1 PURPLE=1", "SKIP", "SKIP"] * 20)
    play(other, again)
    assert again.turns == player.turns


def test_a_wrong_code_ends_the_game() -> None:
    game = play(SETUP, Scripted(["BLUE=1 YELLOW=1 PURPLE=1", "SKIP", "BLUE=3 YELLOW=1 PURPLE=2"]))
    assert (game.outcome, game.rounds, game.queries) == ("wrong_code", 1, 0)


def test_unreadable_replies_get_three_more_tries() -> None:
    bad = ["I think", "BLUE=9 YELLOW=1 PURPLE=1", "BLUE=x"]
    player = Scripted([*bad, "BLUE=1 YELLOW=1 PURPLE=1", "VERIFIER 7", "SKIP", "SKIP"] + ["?"] * 4)
    game = play(SETUP, player)
    assert (game.outcome, game.rounds, game.retries) == ("unreadable", 2, 3 + 1 + 4)
    assert "has a digit that is not from 1 to 5" in player.turns[2] and player.turns[2].endswith("PURPLE=3.")
    assert [turn.count("Tries left: 1.") for turn in player.turns].count(1) == 2
    assert len(player.turns) == 7 + 1 + MAX_RETRIES


def test_what_a_player_raises_is_not_an_unreadable_reply() -> None:
    class Broken:
        def respond(self, turn: str) -> str:
            raise ValueError("no connection")

    with pytest.raises(ValueError, match="no connection"):
        play(SETUP, Broken())


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("BLUE=1 YELLOW=2 PURPLE=3", (1, 2, 3)),
        ("First BLUE=1, YELLOW=1, PURPLE=1, no: blue = 5, yellow = 4, purple = 3", (5, 4, 3)),
        ("**BLUE: 2**, **YELLOW: 2**, **PURPLE: 1**", (2, 2, 1)),
        ("I will not SKIP: BLUE=1 YELLOW=2 PURPLE=3", (1, 2, 3)),
    ],
)
def test_reads_codes(reply: str, code: tuple[int, int, int]) -> None:
    assert read_code(reply) == read_code_or_skip(reply) == code


def test_reads_choices() -> None:
    assert read_code_or_skip("BLUE=1 YELLOW=2 PURPLE=3 might fit, so I skip") is None
    assert read_verifier("Not verifier 0, but VERIFIER 2", 4) == 2
    assert read_verifier("verifier #1", 4) == 1
    assert read_verifier("Verifier 1 said enough. SKIP", 4) is None
    with pytest.raises(ValueError, match="only 0 to 3"):
        read_verifier("VERIFIER 4", 4)
    with pytest.raises(ValueError, match="neither"):
        read_verifier("skipping", 4)
    assert all(read_code(show_code(code)) == code for code in CODES)


def test_chance_submits_at_once() -> None:
    games = [play(SETUP, RandomPlayer(f"{seed}")) for seed in range(500)]
    assert {game.outcome for game in games} == {"won", "wrong_code"} and {game.rounds for game in games} == {1}
    assert 0 < sum(game.outcome == "won" for game in games) < 15  # 500 / 125 = 4 are expected


def test_enumeration_wins_by_the_turns_alone() -> None:
    assert play(SETUP, EnumerationPlayer()).outcome == "won"


def test_enumeration_wins_all_45() -> None:
    setups = load_setups(found_or_skip(SETUPS_FILE, HOW_TO_GET), found_or_skip(RULES_FILE, HOW_TO_GET))
    games = [play(setup, EnumerationPlayer()) for setup in setups]
    assert [game.setup_id for game in games if game.outcome != "won"] == []
    assert max(game.rounds for game in games) < 10
