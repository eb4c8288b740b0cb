"""Open a checkpoint, let it read a conversation it has never seen, and ask it three questions.

    python -m mlmf.demo outputs/demo/final

Nothing of the conversation is in the prompt: what the model knows of it stands in the memory state alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from mlmf.config.parse import run_script
from mlmf.data.tasks import load_task
from mlmf.errors import UserError
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.types import Conversation, Question


def remember_all(model: MLMFModel, conversation: Conversation) -> MemoryState:
    """A memory state that holds every session of a conversation."""
    state = model.init_state(batch_size=1)
    for session in track(conversation.sessions, f"remembering user {conversation.id}", transient=True):
        state = model.remember([session], state)
    return state


def pick(conversation: Conversation) -> list[Question]:
    """An early fact, a late fact and a question about what never happened: by place, whatever the answers are."""
    facts = [question for question in conversation.questions if not question.is_trap]
    traps = [question for question in conversation.questions if question.is_trap]
    return [facts[0], facts[-1], *traps[:1]]


def show(model: MLMFModel, conversation: Conversation, console: Console) -> None:
    """Ask and print, for each question: the answer, the gold, the gate shares, and what was recalled."""
    state = remember_all(model, conversation)
    tokens = sum(len(model.tokenizer(turn.content)["input_ids"]) for turn in conversation.turns)
    console.print(
        f"Remembered {len(conversation.sessions)} sessions, about {tokens:,} tokens of text, "
        f"in {state.n_bytes / 1e6:.0f} MB of memory state."
    )
    questions = pick(conversation)
    for question, answer in zip(questions, model.answer_all([q.query for q in questions], state), strict=True):
        table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 1))
        table.add_row("question", question.text)
        table.add_row("[bold]answer[/bold]", f"[bold]{answer.text}[/bold]")
        table.add_row(
            "gold", "(never happened: the right reaction is to say so)" if question.is_trap else question.answer
        )
        table.add_row("gates", "  ".join(f"{name} {share:.2f}" for name, share in answer.gates.items()))
        table.add_row("prompt", f"{answer.tokens_read} tokens: the question alone")
        table.add_row("recalled", "\n".join(answer.recalled_lines[:3]))
        console.print()
        console.print(table)


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.demo", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("checkpoint", type=Path, help="folder that train.py wrote")
    parser.add_argument("--user", default=None, help="id of a held-out LOCCO user; the first one by default")
    arguments = parser.parse_args()
    conversations = {c.id: c for c in load_task("locco", split="test").conversations}
    user = arguments.user or next(iter(conversations))
    if user not in conversations:
        raise UserError(f"--user {user} is no held-out user. There are: {', '.join(conversations)}")
    show(MLMFModel.from_pretrained(arguments.checkpoint), conversations[user], Console())
    return 0


if __name__ == "__main__":
    run_script(main)
