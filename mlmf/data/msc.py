"""Multi-Session Chat (Xu et al., ACL 2022): two people who chat again after hours or days. For training only.

The licence of the data is unstated, so it neither ships nor is fetched. No absolute date exists in it (a gap such as
"6 days ago" is relative to an unknown day), so sessions are undated. Speaker ids are absent from earlier sessions and
now and then misprinted in the last; every dialogue alternates strictly, so speakers are told by position.

The session-3 files continue the same pairs of people as the session-2 files: each session-2 dialogue comes again, nearly
always word for word, as the second session of a session-3 conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlmf.data.reading import NonBlank, Record, checked, json_lines, read_text, unique
from mlmf.errors import UserError, unknown_name
from mlmf.paths import find_data
from mlmf.types import Conversation, Session, Turn

SPEAKERS = ("Speaker 1", "Speaker 2")
SPLITS = ("train", "valid", "test")
SESSIONS = (2, 3)
HOW_TO_GET_MSC = (
    "take session_<n>/<split>.txt of ParlAI's msc_v0.1 archive and save it under this name in a data folder"
)


class _Turn(Record):
    text: NonBlank


class _Dialog(Record):
    dialog: list[_Turn]


class _Metadata(Record):
    initial_data_id: NonBlank


class _Line(Record):
    dialog: list[_Turn]
    previous_dialogs: list[_Dialog]
    metadata: _Metadata


def load_msc(split: str = "valid", sessions: Sequence[int] = SESSIONS) -> tuple[Conversation, ...]:
    """Read the files whose last session is one of ``sessions`` (2, 3), in that order.

    Raises:
        UserError: unknown split or session, a file that is not there, or a malformed line.
    """
    return tuple(conversation for path in msc_files(split, sessions) for conversation in load_msc_file(path))


def msc_files(split: str, sessions: Sequence[int] = SESSIONS) -> tuple[Path, ...]:
    """Paths of the files of a split, one for each number in ``sessions``; errors as :func:`load_msc`."""
    if split not in SPLITS:
        raise unknown_name("MSC split", split, SPLITS)
    for number in sessions:
        if number not in SESSIONS:
            raise unknown_name("MSC session", str(number), map(str, SESSIONS))
    return tuple(find_data(f"msc/dialogue_session_{number}_{split}.jsonl", HOW_TO_GET_MSC) for number in sessions)


def load_msc_file(path: str | Path) -> tuple[Conversation, ...]:
    """Read one file in MSC's layout: earlier dialogues as sessions in order, then the current one.

    A conversation's id is that of its first dialogue and its number of sessions, ``valid_0/3``.
    """
    path = Path(path)
    lines = list(json_lines(read_text(path), path.name))
    if not lines:
        raise UserError(f"{path}: holds no conversation")
    conversations = tuple(_conversation(value, where) for where, value in lines)
    unique(((one.id, where) for one, (where, _) in zip(conversations, lines, strict=True)), "metadata.initial_data_id")
    return conversations


def _conversation(value: object, where: str) -> Conversation:
    line = checked(_Line, value, where)
    dialogs = [*(previous.dialog for previous in line.previous_dialogs), line.dialog]
    for index, turns in enumerate(dialogs):
        if not turns:
            place = f"previous_dialogs[{index}].dialog" if index < len(line.previous_dialogs) else "dialog"
            raise UserError(f"{where}: {place}: must hold at least one turn, got []")
    sessions = tuple(
        Session(
            index,
            None,
            tuple(Turn(f"S{index}:{i}", SPEAKERS[i % 2], turn.text) for i, turn in enumerate(turns)),
        )
        for index, turns in enumerate(dialogs)
    )
    return Conversation(f"{line.metadata.initial_data_id}/{len(sessions)}", sessions, speakers=SPEAKERS)
