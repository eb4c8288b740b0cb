"""Play TurnBench's classic mode: 45 games in which a hidden code is found by asking verifiers over many turns.

Examples:
    python -m mlmf.evaluation.turnbench
    python -m mlmf.evaluation.turnbench --players chat --chat.model smollm2-135m --limit 5
    python -m mlmf.evaluation.turnbench --players chat --chat.base_url http://localhost:8000/v1 --chat.model my-model
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mlmf.config.parse import parse_config, run_script
from mlmf.config.turnbench import PlayerName, TurnBenchConfig
from mlmf.data.turnbench import Setup, load_setups
from mlmf.evaluation.results import write_json
from mlmf.evaluation.statistics import mean, proportion
from mlmf.evaluation.turnbench_game import Game, Player, play
from mlmf.evaluation.turnbench_players import ChatPlayer, EnumerationPlayer, RandomPlayer
from mlmf.llm.load import load_chat_model
from mlmf.retrieval.encoder import SentenceEncoder
from mlmf.systems.cogmem.build import build_cogmem
from mlmf.systems.cogmem.chat import CogMemChat

logger = logging.getLogger(__name__)

MakePlayer = Callable[[str], Player]
"""A fresh player for one game, by the game's name: nothing may be carried from game to game."""


def player_maker(name: PlayerName, config: TurnBenchConfig) -> MakePlayer:
    """Whoever plays under ``name``."""
    if name == "enumeration":
        return lambda game: EnumerationPlayer()
    if name == "random":
        return RandomPlayer
    model = load_chat_model(config.chat)
    if name == "chat":
        return lambda game: ChatPlayer(model, config.max_new_tokens)
    memory = build_cogmem(
        config.cogmem,
        count_tokens=model.count_tokens,
        new_encoder=lambda: SentenceEncoder("all-minilm-l6-v2"),
        load_agent=lambda agent: load_chat_model(getattr(config.cogmem, agent), default_model=config.chat.model),
    )
    return lambda game: CogMemChat(memory, model, user=game, max_new_tokens=config.max_new_tokens)


def play_all(setups: Sequence[Setup], make_player: MakePlayer, max_rounds: int, repeats: int = 1) -> list[Game]:
    """Play every set-up ``repeats`` times, each game with a player of its own."""
    games = []
    for number, setup in enumerate(setups, start=1):
        games += [play(setup, make_player(f"{setup.id}-{i}"), max_rounds) for i in range(repeats)]
        logger.info("%d/%d %s (%s): %s", number, len(setups), setup.id, setup.difficulty, games[-1].outcome)
    return games


def score(games: Sequence[Game]) -> dict[str, Any]:
    """Share of games won with its Wilson interval, in all and by difficulty; means of rounds, queries and retries."""
    groups = {"all": list(games)}
    for game in games:
        groups.setdefault(game.difficulty, []).append(game)
    return {
        name: {
            "accuracy": proportion(sum(game.outcome == "won" for game in group), len(group)),
            "rounds": mean(game.rounds for game in group)["mean"],
            "queries": mean(game.queries for game in group)["mean"],
            "retries": mean(game.retries for game in group)["mean"],
            "outcomes": dict(Counter(game.outcome for game in group)),
        }
        for name, group in groups.items()
    }


def first_of_each(setups: Sequence[Setup], limit: int | None) -> list[Setup]:
    """The first ``limit`` set-ups of each difficulty, in their order."""
    seen: Counter[str] = Counter()
    kept = []
    for setup in setups:
        seen[setup.difficulty] += 1
        if limit is None or seen[setup.difficulty] <= limit:
            kept.append(setup)
    return kept


def run(config: TurnBenchConfig) -> dict[str, Any]:
    """Play, and write the scores to ``config.output``."""
    setups = first_of_each(load_setups(), config.limit)
    players: dict[str, Any] = {}
    for name in config.players:
        make_player = player_maker(name, config)
        began = time.perf_counter()
        games = play_all(setups, make_player, config.max_rounds, config.random_repeats if name == "random" else 1)
        players[name] = {"scores": score(games), "seconds": round(time.perf_counter() - began, 1)}
        if name in ("chat", "cogmem"):
            players[name] |= {"model": config.chat.model, "games": [asdict(game) for game in games]}
    results = {
        "players": players,
        "setups": len(setups),
        "max_rounds": config.max_rounds,
        "max_new_tokens": config.max_new_tokens,
        "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    write_json(Path(config.output), results)
    return results


def table(results: dict[str, Any]) -> Table:
    """One line per player and difficulty."""
    shown = Table(
        "player", "difficulty", "won", "95 % interval", "games", "rounds", "queries", title="TurnBench, classic"
    )
    for player, entry in results["players"].items():
        for difficulty, one in entry["scores"].items():
            won, (low, high) = one["accuracy"], one["accuracy"]["ci95"]
            shown.add_row(
                player, difficulty, f"{won['mean']:.3f}", f"{low:.3f} to {high:.3f}", str(won["n"]),
                f"{one['rounds']:.2f}", f"{one['queries']:.2f}",
            )  # fmt: skip
    return shown


def main() -> int:
    """Parse, play, print."""
    summary, _, examples = (__doc__ or "").partition("\n\n")
    prog = "python -m mlmf.evaluation.turnbench"
    config = parse_config(TurnBenchConfig, None, prog=prog, description=summary, epilog=examples)
    Console().print(table(run(config)))
    return 0


if __name__ == "__main__":
    run_script(main)
