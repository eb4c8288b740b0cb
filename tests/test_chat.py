"""Chatting: what is told is remembered, kept in a file and forgotten again; no line of a person ends the program."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from mlmf import MemoryState, MLMFConfig, MLMFModel
from mlmf.chat import HELP, Chat, replies

TODAY = datetime(2026, 5, 31)


@pytest.fixture(scope="module")
def model() -> MLMFModel:
    return MLMFModel.from_base("tiny-random", MLMFConfig(base_model="tiny-random"))


def new_chat(model: MLMFModel) -> Chat:
    return Chat(model, model.init_state(), "User", lambda: TODAY)


def test_what_is_told_between_two_questions_is_a_session_of_the_day(model: MLMFModel) -> None:
    chat = new_chat(model)
    lines = [
        "I adopted a cat.",
        "Its name is Miso.",
        "What is my cat called?",
        "I moved to Leiden.",
        "Where do I live?",
    ]
    said = list(replies(chat, iter(lines)))
    assert [bool(text) for text in said] == [False, False, True, False, True]
    assert "[dim]" in said[2] and "Miso" in said[2]  # the turns that were read
    turns = [(node.session, node.turn, node.line) for node in chat.state.nodes[0] if not node.is_session]
    assert turns == [
        (0, 0, "[31 May 2026] User: I adopted a cat."),
        (0, 1, "[31 May 2026] User: Its name is Miso."),
        (1, 0, "[31 May 2026] User: I moved to Leiden."),
    ]


def test_forgetting_takes_effect_at_once_and_later_sessions_keep_numbers_of_their_own(model: MLMFModel) -> None:
    chat = new_chat(model)
    said = list(
        replies(chat, iter(["I sold my boat.", "Where is it?", "Anna visited me.", "/forget Anna", "It rains."]))
    )
    assert said[3] == "[dim]forgot 2 turns and date lines[/dim]"
    chat.settle()
    assert [node.line for node in chat.state.nodes[0] if not node.is_session] == [
        "[31 May 2026] User: I sold my boat.",
        "[31 May 2026] User: It rains.",
    ]
    assert len({node.key for node in chat.state.nodes[0]}) == 4
    assert list(replies(chat, iter(["/since 2026-05-01"]))) == ["[dim]forgot 4 turns and date lines[/dim]"]
    assert chat.state.nodes == ((),)


def test_a_line_that_cannot_be_followed_says_why_and_the_chat_goes_on(model: MLMFModel) -> None:
    said = list(
        replies(new_chat(model), iter(["/since yesterday", "/nonsense", "/forget", "", "/quit", "never read"]))
    )
    assert said == ["[red]/since yesterday: not a date; write it as 2026-05-31[/red]", HELP, HELP, ""]


def test_memory_outlives_the_program(tmp_path: Path, model: MLMFModel) -> None:
    checkpoint, memory = tmp_path / "tiny", tmp_path / "me.safetensors"
    model.save_pretrained(checkpoint)
    for text, known in (("I adopted [a] cat.\n", 0), ("What did I adopt?\n/memory\n", 1)):
        done = subprocess.run(
            [sys.executable, "-m", "mlmf.chat", str(checkpoint), "--memory", str(memory)],
            input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert f"{known} sessions remembered" in done.stdout
    assert "I adopted [a] cat." in done.stdout
    assert MemoryState.load(memory).sessions == (1,)


def test_a_chat_that_is_killed_has_kept_what_was_asked_about_and_keeps_a_second_one_out(
    tmp_path: Path, model: MLMFModel
) -> None:
    checkpoint, memory = tmp_path / "tiny", tmp_path / "me.safetensors"
    model.save_pretrained(checkpoint)
    command = [sys.executable, "-m", "mlmf.chat", str(checkpoint), "--memory", str(memory)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdin is not None and first.stdout is not None
    first.stdin.write("I adopted a cat.\nWhat did I adopt?\n")
    first.stdin.flush()
    while "User: I adopted a cat." not in first.stdout.readline():  # printed after the memory is written
        pass
    second = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert second.returncode == 2 and "another chat is using it" in second.stderr
    first.kill()
    first.communicate()
    assert MemoryState.load(memory).sessions == (1,)
    assert subprocess.run(command, input="", capture_output=True, text=True, check=False).returncode == 0


def test_a_memory_that_is_none_is_left_as_it_is(tmp_path: Path, model: MLMFModel) -> None:
    checkpoint, memory = tmp_path / "tiny", tmp_path / "me.safetensors"
    model.save_pretrained(checkpoint)
    memory.write_text("not a memory")
    command = [sys.executable, "-m", "mlmf.chat", str(checkpoint), "--memory", str(memory)]
    done = subprocess.run(command, input="I moved.\n", capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "is not a safetensors file" in done.stderr
    assert memory.read_text() == "not a memory"


def test_a_memory_of_several_conversations_is_refused_and_a_byte_that_is_no_letter_is_not(
    tmp_path: Path, model: MLMFModel
) -> None:
    checkpoint, memory = tmp_path / "tiny", tmp_path / "me.safetensors"
    model.save_pretrained(checkpoint)
    command = [sys.executable, "-m", "mlmf.chat", str(checkpoint), "--memory", str(memory)]
    model.init_state(batch_size=2).save(memory)
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert done.returncode == 2 and b"holds 2 conversations, and a chat is one" in done.stderr
    memory.unlink()
    done = subprocess.run(command, input=b"I moved.\nTo a caf\xe9.\n", capture_output=True, check=True)
    lines = [node.line for node in MemoryState.load(memory).nodes[0]][-2:]
    assert lines[0].endswith("User: I moved.") and lines[1].endswith("User: To a caf\ufffd.")
