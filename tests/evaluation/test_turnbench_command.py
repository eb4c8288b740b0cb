from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlmf.config.llm import ChatSettings
from mlmf.config.turnbench import PlayerName, TurnBenchConfig
from mlmf.errors import UserError
from mlmf.evaluation.statistics import proportion
from mlmf.evaluation.turnbench import first_of_each, main, run, score
from mlmf.evaluation.turnbench_game import Game, play
from mlmf.evaluation.turnbench_players import ChatPlayer
from mlmf.llm.chat import ChatModel, Message, Reply
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.chat import CogMemChat
from tests.data.test_turnbench import RULES, SETUP
from tests.evaluation.test_turnbench import SETUP as GAME


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three set-ups of our own where the command looks for them."""
    folder = tmp_path / "turnbench"
    folder.mkdir()
    setups = [SETUP | {"setup_id": name, "difficulty": level} for name, level in (("A", "easy"), ("B", "hard"))]
    (folder / "classic45.json").write_text(json.dumps({"setups": [*setups, SETUP]}), encoding="utf-8")
    (folder / "verifier_rules.json").write_text(json.dumps(RULES), encoding="utf-8")
    monkeypatch.setenv("MLMF_DATA", str(tmp_path))
    return tmp_path


def test_scores_are_told_by_difficulty() -> None:
    games = [
        Game("a", "easy", "won", 2, 4, 0), Game("b", "easy", "unreadable", 1, 0, 4), Game("c", "hard", "won", 3, 8, 0),
    ]  # fmt: skip
    scores = score(games)
    assert list(scores) == ["all", "easy", "hard"]
    assert scores["easy"]["accuracy"] == proportion(1, 2) and scores["all"]["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert (scores["all"]["rounds"], scores["all"]["queries"], scores["easy"]["retries"]) == (2.0, 4.0, 2.0)
    assert scores["all"]["outcomes"] == {"won": 2, "unreadable": 1}


def test_the_command_plays_prints_and_writes(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = data / "scores.json"
    monkeypatch.setattr(sys, "argv", ["turnbench", "--random_repeats", "50", "--output", str(output)])
    assert main() == 0
    printed = capsys.readouterr().out
    assert "enumeration" in printed and "hard" in printed
    players = json.loads(output.read_text(encoding="utf-8"))["players"]
    assert players["enumeration"]["scores"]["all"]["accuracy"] == proportion(3, 3)
    assert players["random"]["scores"]["all"]["accuracy"]["n"] == 150
    assert players["random"]["scores"]["all"]["accuracy"]["mean"] < 0.1


@pytest.mark.parametrize("player", ["chat", "cogmem"])
def test_a_chat_model_plays(player: PlayerName, data: Path) -> None:
    chat = ChatSettings(model="tiny-random")
    config = TurnBenchConfig([player], chat, max_new_tokens=4, limit=1, output=str(data / "chat.json"))
    entry = run(config)["players"][player]
    assert [game["outcome"] for game in entry["games"]] == ["unreadable", "unreadable"]
    assert entry["scores"]["all"]["accuracy"]["mean"] == 0.0 and entry["model"] == "tiny-random"


def test_cogmem_plays_within_its_window(data: Path) -> None:
    settings = TurnBenchConfig(["cogmem"], ChatSettings(model="tiny-random")).cogmem
    model = ShortWindow()
    memory = build_cogmem(
        settings,
        count_tokens=model.count_tokens,
        new_encoder=lambda: pytest.fail("no long-term memory"),
        load_agent=lambda name: pytest.fail("rules play the agents"),
    )
    assert play(GAME, CogMemChat(memory, model, user="game", max_new_tokens=50)).outcome == "out_of_rounds"
    assert len(model.seen) == 60
    # each window holds what is asked now, and no more than the model reads
    assert "Submit the hidden code" in model.seen[-1][-1].content
    assert all(sum(model.count_tokens(one.content) for one in seen) < 1000 for seen in model.seen)


def test_limit_takes_the_first_of_each_difficulty() -> None:
    hard = type(GAME)("other", "hard", GAME.verifiers, GAME.answer)
    assert first_of_each([GAME, GAME, hard], 1) == [GAME, hard]
    assert first_of_each([GAME, GAME, hard], None) == [GAME, GAME, hard]


class ShortWindow(ChatModel):
    """Skips everything, and holds little."""

    name = "short"
    context_window = 1000

    def __init__(self) -> None:
        self.seen: list[list[Message]] = []

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    def chat(
        self, conversations: Sequence[Sequence[Message]], max_new_tokens: int, *, schema: object = None
    ) -> list[Reply]:
        self.seen += [list(one) for one in conversations]
        return [Reply("BLUE=1 YELLOW=1 PURPLE=1 SKIP", 1, 1) for _ in conversations]


def test_a_long_game_keeps_the_rules_and_the_latest_turns() -> None:
    model = ShortWindow()
    assert play(GAME, ChatPlayer(model, 100)).outcome == "out_of_rounds"
    assert len(model.seen) == 60
    for conversation in model.seen:
        assert "Verifier 0:" in conversation[0].content
        assert [one.role for one in conversation] == (["user", "assistant"] * 60)[: len(conversation)]
        assert sum(model.count_tokens(one.content) for one in conversation) < 900
    assert model.seen[-1][-1].content.startswith("Submit")
    assert len(model.seen[-1]) < 119


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_rounds": 0}, "max_rounds"),
        ({"limit": 0}, "limit"),
        ({"players": []}, "players"),
        ({"players": ["chat"]}, "chat.model"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TurnBenchConfig(**settings)  # type: ignore[arg-type]
