"""Settings become stores, agents and models: only what is asked for, each model once, nothing of a chat in the harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.config.cogmem import CogMemSettings
from mlmf.config.evaluation import EvalConfig
from mlmf.config.llm import ChatSettings
from mlmf.errors import UserError
from mlmf.systems.build import Shared, build_system
from mlmf.systems.cogmem.agents import ModelFocusAgent
from mlmf.systems.cogmem.build import Agents, open_cogmem
from mlmf.systems.cogmem.chat import CogMemChat
from mlmf.systems.cogmem.serve import ServeConfig
from mlmf.types import Session, Turn
from tests.retrieval.tiny_encoder import save_tiny_encoder
from tests.systems.cogmem.doubles import WORDS
from tests.systems.doubles import WordEncoder

TINY = ChatSettings(model="tiny-random")


def test_two_agents_of_the_same_settings_are_one_model() -> None:
    same = Agents(CogMemSettings(memory_agent=TINY, reasoning_agent=TINY), base_model=None, device="cpu")
    assert same("memory_agent") is same("reasoning_agent") is same("memory_agent")
    server = ChatSettings(model="big", base_url="http://localhost:1/v1")
    other = Agents(CogMemSettings(memory_agent=TINY, reasoning_agent=server), base_model=None, device="cpu")
    assert (other("memory_agent").name, other("reasoning_agent").name) == ("tiny-random", "big")


def test_a_real_model_talks_and_everything_outlives_the_process_in_files(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    settings = CogMemSettings(
        extractor="llm", agent_tokens=4, reasoning_agent=TINY, memory_agent=TINY, focus_tokens=120,
        sessions=str(tmp_path / "sessions.db"), vectors=str(tmp_path / "insights.db"),
    )  # fmt: skip
    encoder = str(save_tiny_encoder(tmp_path / "bert"))
    memory, model = open_cogmem(settings, encoder=encoder, device="cpu")
    chat = CogMemChat(memory, model, max_new_tokens=4)
    chat.respond("My cat Miso moved to Oslo in May.")
    chat.end_session()
    memory.close()
    again, _ = open_cogmem(settings, encoder=encoder, device="cpu")
    assert again.long_term is not None
    (found,) = again.long_term.retrieve("user", "the cat", 5)  # written by rules: the model writes no JSON
    assert found.text == "User: My cat Miso moved to Oslo in May."
    again.close()


def test_the_harness_leaves_the_stores_of_a_chat_alone(tmp_path: Path) -> None:
    settings = CogMemSettings(
        sessions=str(tmp_path / "sessions.db"), vectors=str(tmp_path / "insights.db"), extractor="llm"
    )
    shared = Shared(EvalConfig(system="cogmem", base_model="tiny-random", cogmem=settings))
    shared.encoder = WordEncoder(*WORDS)  # type: ignore[assignment]
    system = build_system("cogmem", shared)
    system.observe(Session(0, None, (Turn("a", "Ann", "My cat moved to Oslo in May."),)))
    assert list(tmp_path.iterdir()) == []
    assert isinstance(system.memory.focus.agent, ModelFocusAgent)  # type: ignore[union-attr]


def test_parts_that_are_off_need_nothing() -> None:
    off = CogMemSettings(focus_of_attention=False, direct_access=False, long_term=False, reasoning_agent=TINY)
    memory, _ = open_cogmem(off, encoder="no such encoder", device="cpu")
    assert (memory.direct_access, memory.long_term, memory.focus) == (None, None, None)
    with pytest.raises(UserError, match="unknown encoder 'no such encoder'"):
        open_cogmem(CogMemSettings(reasoning_agent=TINY), encoder="no such encoder", device="cpu")


def test_a_server_listens_on_this_machine_only_unless_told_otherwise() -> None:
    assert ServeConfig().host == "127.0.0.1"
