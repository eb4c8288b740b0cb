"""LOCCO (Jia et al., Findings of ACL 2025): years of short dialogues between one user and a chatbot. Ships with mlmf.

The authors published dialogues but no questions, so this package brings its own probes: for 56 users, 18 facts (three
for each of six periods) and 4 traps, as JSONL with one probe a line::

    {"id": "2-00", "user": 2, "kind": "fact", "period": 1, "session": 1, "question": "Which camera ...?",
     "answer": "Canon EOS Rebel", "evidence": "an exact substring of something the user said in that session"}
    {"id": "2-18", "user": 2, "kind": "trap", "session": 5, "question": "What did I buy ...?", "lure": "a Pentax"}

``user`` is the position in LOCCO's list and ``session`` counts from 0. A trap asks about something that never happened:
it has no ``answer``, and its ``lure`` is what a confused memory would say. ``period`` may be left out. Files of one's
own take the same form.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from mlmf.data.reading import (
    Date,
    ExactRecord,
    NonBlank,
    Record,
    Text,
    checked,
    decode,
    in_order,
    json_lines,
    parse_json,
    read_text,
    shown,
    unique,
)
from mlmf.errors import UserError, unknown_name
from mlmf.types import Conversation, Question, Session, Turn

Size = Literal["standard", "long"]
PeriodSplit = Literal["balanced", "released"]

FILES = Path(__file__).parent / "files"
LOCCO_FILES: dict[str, str] = {"standard": "LOCCO.json.gz", "long": "LOCCO_L.json.gz"}
LOCCO_SHA256: dict[str, str] = {
    "standard": "55512a73c055ec38d11b11645137f23acdca1f35f61959a92685d73fe420afd3",
    "long": "4bc671cc1b7e7e970dd916d932b375a6b83a77115284620ffd82b3e13129ad9a",
}
"""sha256 of the decompressed files, which are the authors' bytes."""
PROBE_FILES = {"train": "probes.train.jsonl", "test": "probes.test.jsonl"}
PROBE_SHA256 = {
    "train": "82d94f254be04662f22e1903086c919edd5de2f7dba6538e25caaede3d0db4c2",
    "test": "b1a17752d61ddd5d7e9b21674417030c3ae43c07831a5333a654707984ee7a71",
}
PERIODS = 6
SPEAKERS = ("User", "Bot")

_SENTINEL = ["generate all error"]


def period_of(session: int, n_sessions: int, split: PeriodSplit = "balanced") -> int:
    """Period, 1 to 6, of a 0-based session among ``n_sessions``.

    Args:
        session: the session.
        n_sessions: of its conversation, at least six.
        split: ``balanced``, sixths as even as they can be, or ``released``, as the authors' code divides them: sixths
            rounded down, and what remains goes to the last period (28 sessions: 4, 4, 4, 4, 4, 8).
    """
    if split == "balanced":
        return session * PERIODS // n_sessions + 1
    return min(session // (n_sessions // PERIODS), PERIODS - 1) + 1


class _Round(Record):
    User: Text
    Chatbot: Text


class _Dialogue(Record):
    date: Date
    rounds: str


def load_locco(size: Size = "standard", *, path: str | Path | None = None) -> tuple[Conversation, ...]:
    """Read the dialogues. A conversation's id is the user's position in the file; there are no questions yet.

    Args:
        size: ``standard`` (LOCCO: 104 users of 24, 28 or 32 sessions) or ``long`` (LOCCO-L: 20 users of 92 to 128).
        path: another file in LOCCO's layout, plain or ``.gz``, read in place of the one that ships.

    Raises:
        UserError: unknown size, unreadable file or malformed record.
    """
    if size not in get_args(Size):
        raise unknown_name("LOCCO size", size, get_args(Size))
    if path is None:
        file = LOCCO_FILES[size].removesuffix(".gz")
        data = gzip.decompress((FILES / LOCCO_FILES[size]).read_bytes())
        if hashlib.sha256(data).hexdigest() != LOCCO_SHA256[size]:
            raise UserError(f"{file}: the copy inside the package is damaged; reinstall mlmf")
        text = decode(data, file)
    else:
        path = Path(path)
        file, text = path.name, _read_own(path)
    users = parse_json(text, file)
    if not isinstance(users, list):
        raise UserError(f"{file}: must be a JSON list of users as in LOCCO, got {shown(users)}")
    conversations = tuple(_conversation(user, index, file) for index, user in enumerate(users) if user != _SENTINEL)
    if not conversations:
        raise UserError(f"{file}: holds no conversation")
    return conversations


def _read_own(path: Path) -> str:
    if path.suffix != ".gz":
        return read_text(path)
    try:
        return decode(gzip.decompress(path.read_bytes()), path.name)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read as gzip ({error})") from error


def _conversation(user: Any, index: int, file: str) -> Conversation:
    where = f"{file}: user {index}"
    if not isinstance(user, list) or not user:
        raise UserError(f"{where}: must be a list with at least one dialogue, got {shown(user)}")
    sessions = tuple(_session(item, number, where) for number, item in enumerate(user))
    in_order((session.date, f"{where}: [{session.index}]") for session in sessions)
    return Conversation(str(index), sessions, speakers=SPEAKERS)


def _session(item: Any, number: int, where: str) -> Session:
    place = f"[{number}]"
    if not isinstance(item, list) or len(item) != 2:
        raise UserError(f"{where}: {place}: must be [date, dialogue as a JSON string], got {shown(item)}")
    dialogue = checked(_Dialogue, {"date": item[0], "rounds": item[1]}, where, place)
    rounds = parse_json(dialogue.rounds, f"{where}: {place}.rounds")
    if not isinstance(rounds, dict) or not rounds or not all(key.isdecimal() for key in rounds):
        raise UserError(f'{where}: {place}.rounds: must be {{"1": {{...}}, "2": ...}}, got {shown(rounds)}')
    records = [checked(_Round, rounds[key], where, f"{place}.rounds.{key}") for key in sorted(rounds, key=int)]
    said = [
        (speaker, text) for one in records for speaker, text in zip(SPEAKERS, (one.User, one.Chatbot), strict=True)
    ]
    turns = tuple(Turn(f"S{number}:{i}", speaker, text) for i, (speaker, text) in enumerate(said))
    return Session(number, dialogue.date, turns)


class _ProbeLine(ExactRecord):
    id: NonBlank
    user: int
    kind: Literal["fact", "trap"]
    session: int
    question: NonBlank
    period: int | None = None
    answer: NonBlank | None = None
    evidence: NonBlank | None = None
    lure: Text | None = None


class Probe(_ProbeLine):
    """A question about one LOCCO user, not yet checked against the dialogues; the module describes the fields."""

    where: str
    """File and line it was read from, for messages."""


def load_probes(split: str | Path = "test") -> tuple[Probe, ...]:
    """Read probes: ``train`` (880 on 40 users), ``test`` (352 on 16 other users), or a file of one's own.

    Args:
        split: ``train``, ``test`` or the path of a file.

    Raises:
        UserError: unknown split, unreadable or empty file, a malformed line, or an id used twice.
    """
    path = FILES / PROBE_FILES[split] if isinstance(split, str) and split in PROBE_FILES else Path(split)
    # one bare word that leads nowhere is more likely a misspelt split than the name of a file
    if isinstance(split, str) and split.isidentifier() and not path.is_file():
        raise unknown_name("probe split", split, PROBE_FILES)
    probes = tuple(_probe(value, where) for where, value in json_lines(read_text(path), path.name))
    if not probes:
        raise UserError(f"{path}: holds no probe")
    unique(((probe.id, probe.where) for probe in probes), "probe id")
    return probes


def _probe(value: object, where: str) -> Probe:
    record = checked(_ProbeLine, value, where)
    if record.kind == "fact":
        for name in ("answer", "evidence"):
            if getattr(record, name) is None:
                raise UserError(f"{where}: {name}: field missing; a probe of kind 'fact' needs it")
    elif record.answer is not None:
        raise UserError(f"{where}: answer: a trap has none, got {record.answer!r}; what tempts goes into lure")
    return Probe(**record.model_dump(), where=where)


def with_probes(conversations: Sequence[Conversation], probes: Iterable[Probe]) -> tuple[Conversation, ...]:
    """The same conversations, each with the probes about its user as questions, in the order given.

    A fact's evidence becomes the ids of the user's turns that contain it, its period the category.

    Raises:
        UserError: a probe names an unknown user or session, a period that is not the session's, or evidence the user
            did not say in that session.
    """
    by_id = {conversation.id: conversation for conversation in conversations}
    questions: defaultdict[str, list[Question]] = defaultdict(list)
    for probe in probes:
        conversation = by_id.get(str(probe.user))
        if conversation is None:
            raise UserError(f"{probe.where}: user: LOCCO has no user {probe.user}; users are {_id_range(by_id)}")
        mine = questions[conversation.id]
        mine.append(_question(probe, conversation, len(mine)))
    return tuple(replace(one, questions=tuple(questions.get(one.id, ()))) for one in conversations)


def _question(probe: Probe, conversation: Conversation, index: int) -> Question:
    count = len(conversation.sessions)
    if not 0 <= probe.session < count:
        raise UserError(
            f"{probe.where}: session: user {probe.user} has sessions 0 to {count - 1}, got {probe.session}"
        )
    period = period_of(probe.session, count)
    if probe.period not in (None, period):
        raise UserError(f"{probe.where}: period: session {probe.session} is in period {period}, got {probe.period}")
    evidence: tuple[str, ...] = ()
    if probe.evidence is not None:
        turns = conversation.sessions[probe.session].turns
        evidence = tuple(turn.id for turn in turns if turn.speaker == SPEAKERS[0] and probe.evidence in turn.text)
        if not evidence:
            raise UserError(
                f"{probe.where}: evidence: {shown(probe.evidence)} is not an exact part of anything user {probe.user} "
                f"says in session {probe.session}; copy it from the dialogue"
            )
    return Question(
        conversation_id=conversation.id,
        index=index,
        text=probe.question,
        answer=probe.answer,
        category=period,
        is_trap=probe.kind == "trap",
        lure=probe.lure,
        evidence=evidence,
        evidence_status="ok" if evidence else "none",
        id=probe.id,
        session=probe.session,
    )


def _id_range(ids: Iterable[str]) -> str:
    numbers = sorted(int(one) for one in ids)
    gaps = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
    return f"{numbers[0]} to {numbers[-1]}" + (f" without {', '.join(map(str, gaps))}" if gaps else "")
