"""Tell a checkpoint things and ask about them, today and on other days: a memory that is kept in a file between chats.

    python -m mlmf.chat outputs/demo/final --memory me.safetensors

A line that ends with a question mark is answered from memory, with nothing but the question in the prompt; any other line
is remembered. What is told between two questions is one session of today.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from io import TextIOWrapper
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape

from mlmf.config.parse import run_script
from mlmf.errors import UserError
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.paths import check_writable_folder
from mlmf.types import Answer, Query, Session, Turn

HELP = """Tell me something, or ask with a question mark at the end. Commands:
  /forget WORD    forget all turns with a name or thing, and what was said after them that day
  /since DATE     forget everything from a day on, such as 2026-05-31
  /memory         what is in memory
  /help           this
  /quit           save and leave, as Ctrl-D does"""


class Chat:
    """One person's memory and the model that reads it; ``state`` is replaced by every change."""

    def __init__(self, model: MLMFModel, state: MemoryState, speaker: str, today: Callable[[], datetime]) -> None:
        """Go on from ``state``, which holds one conversation.

        Args:
            model: the model.
            state: what is remembered so far.
            speaker: who tells; "I" in a question is ``User``.
            today: when something is told or asked.
        """
        self.model, self.state, self.speaker, self._today = model, state, speaker, today
        self._told: list[str] = []

    def tell(self, text: str) -> None:
        """Keep a line for the running session, which is written before the next question."""
        self._told.append(text)

    def ask(self, question: str) -> Answer:
        """Answer from memory, after what was told has been written."""
        self.settle()
        return self.model.answer_all([Query(question, self._today())], self.state)[0]

    def settle(self) -> None:
        """Write what was told since the last time as one session."""
        if not self._told:
            return
        index = 1 + max([self.state.latest[0], *(node.session for node in self.state.nodes[0])])
        turns = tuple(Turn(f"S{index}:{i}", self.speaker, text) for i, text in enumerate(self._told))
        self.state = self.model.remember([Session(index, self._today(), turns)], self.state)
        self._told = []

    def forget(self, *, entity: str | None = None, since: date | None = None) -> int:
        """Forget, see :meth:`MLMFModel.forget`; returns how many turns went."""
        self.settle()
        before = len(self.state.nodes[0])
        self.state = self.model.forget(self.state, entity=entity, since=since)
        return before - len(self.state.nodes[0])


def replies(chat: Chat, lines: Iterator[str]) -> Iterator[str]:
    """What to print for each line, as rich markup, until a line says to quit."""
    for line in lines:
        command, _, argument = line.strip().partition(" ")
        if command == "/quit":
            return
        try:
            yield _reply(chat, line.strip(), command, argument.strip())
        except UserError as error:
            yield f"[red]{escape(str(error))}[/red]"


def _reply(chat: Chat, line: str, command: str, argument: str) -> str:
    if command == "/memory":
        chat.settle()
        return escape(chat.model.describe(chat.state))
    if command == "/forget" and argument:
        return f"[dim]forgot {chat.forget(entity=argument)} turns and date lines[/dim]"
    if command == "/since" and argument:
        try:
            day = date.fromisoformat(argument)
        except ValueError as error:
            raise UserError(f"/since {argument}: not a date; write it as 2026-05-31") from error
        return f"[dim]forgot {chat.forget(since=day)} turns and date lines[/dim]"
    if line.startswith("/"):
        return HELP
    if not line.endswith("?"):
        if line:
            chat.tell(line)
        return ""
    answer = chat.ask(line)
    recalled = "".join(f"\n[dim]  {escape(one)}[/dim]" for one in answer.recalled_lines[:2])
    return f"[bold]{escape(answer.text)}[/bold]{recalled}"


def _typed(console: Console) -> Iterator[str]:
    while True:
        try:
            yield console.input("[cyan]> [/cyan]")
        except EOFError:
            return


def main() -> int:
    """Parse, chat and save."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.chat", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder that train.py wrote")
    parser.add_argument("--memory", type=Path, required=True, help="file of the memory; made if it is not there")
    parser.add_argument("--speaker", default="User", help="your name; without one you are the I of your questions")
    arguments = parser.parse_args()
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is no UTF-8 costs a letter, and not the lines before it
    with _only_one(arguments.memory):
        _chat(arguments.checkpoint, arguments.memory, arguments.speaker)
    return 0


def _chat(checkpoint: Path, memory: Path, speaker: str) -> None:
    """Chat until the lines end. The file is written after every answer, so that little is lost however it ends."""
    model = MLMFModel.from_pretrained(checkpoint).eval()
    state = MemoryState.load(memory, model.device) if memory.exists() else model.init_state()
    if len(state.nodes) != 1:
        raise UserError(
            f"--memory {memory}: holds {len(state.nodes)} conversations, and a chat is one; save that one alone, or give "
            "another file"
        )
    model.describe(state)  # refuses a memory of another model before anything is typed
    state.save(memory)  # so does a place that cannot be written
    console, name = Console(), escape(str(memory))
    console.print(f"{name}: {state.sessions[0]} sessions remembered. /help says what can be done.", soft_wrap=True)
    chat = Chat(model, state, speaker, datetime.now)
    try:
        for reply in replies(chat, _typed(console)):
            if chat.state is not state:
                state = chat.state
                state.save(memory)
            if reply:
                console.print(reply, highlight=False, soft_wrap=True)
    finally:  # Ctrl-C too: what was told is not lost
        chat.settle()
        chat.state.save(memory)
        console.print(f"[dim]saved to {name}[/dim]", soft_wrap=True)


@contextmanager
def _only_one(memory: Path) -> Iterator[None]:
    """Keep a second chat out, which would write over what the first is told."""
    check_writable_folder(memory.parent, "--memory")
    lock = FileLock(memory.with_name(f".{memory.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UserError(f"--memory {memory}: another chat is using it; end that one, or give another file") from error
    try:
        yield
    finally:
        lock.release()


if __name__ == "__main__":
    run_script(main)
