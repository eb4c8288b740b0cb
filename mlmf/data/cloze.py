"""Cloze probes about LOCCO users nobody wrote questions for: ``python -m mlmf.data.cloze --output cloze.jsonl``.

A probe shows a sentence of the user with a blank for a name, number or date that occurs in exactly one of their
dialogues. No language model is involved, so everybody gets the same file, and ``evaluate.py --probes`` takes it. Traps are
such sentences of another user whose blank never occurs in this user's dialogues.

They are easier to find and harder to answer than written questions: the words of the sentence lead to it, and a blank may
have more than one sensible filling. Scores on them are compared with each other, never with those of written probes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from mlmf.data.locco import PERIODS, SPEAKERS, Size, load_locco, load_probes, period_of
from mlmf.errors import UserError
from mlmf.paths import atomic_write_text, check_writable_folder, sha256_of
from mlmf.types import Conversation

BLANK = "____"
QUESTION = 'What belongs in the blank of what I said: "{}"?'
MIN_WORDS = 5
"""Words a sentence must have beside its blank; shorter ones could be about anything."""

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_NAME = r"[A-Z][\w\u2019'-]+(?:\s+[A-Z][\w\u2019'-]+)*"
# not the first word of a sentence, which is always capitalised, and no "I'm"
_SPAN = re.compile(rf"(?<=[a-z,] )(?!I[\u2019'])(?:{_NAME}|\d[\d,]*(?:\.\d+)?)(?!\w)")


@dataclass(frozen=True, slots=True)
class Cloze:
    """A blank in a sentence of a user: what was said in which session, and what stood in the blank."""

    user: str
    session: int
    sentence: str
    answer: str

    @property
    def question(self) -> str:
        """The sentence with its blank, as it is asked."""
        return QUESTION.format(self.sentence.replace(self.answer, BLANK).rstrip(".!"))


def find_clozes(conversation: Conversation) -> list[Cloze]:
    """Every blank that can be made in what a user said, in the order of the dialogues.

    The answer occurs in no other dialogue of the user, whoever says it, whatever its case, and once in its sentence.
    """
    texts = ["\n".join(turn.text for turn in session.turns).casefold() for session in conversation.sessions]
    found: dict[str, Cloze] = {}
    for session, sentence in _sentences(conversation):
        for match in _SPAN.finditer(sentence):
            answer = re.sub(r"[\u2019']s?$", "", match[0])
            plain = answer.casefold()
            # "'Fiona's ____" and "'The ____ of the Wind'" would be halves of a name
            is_whole = sentence[: match.start()].split()[-1].strip("'\u2018\u201c\"")[:1].islower()
            is_single = len(_occurrences(plain, sentence.casefold())) == 1
            is_long = len(sentence.split()) - len(answer.split()) >= MIN_WORDS
            where = [number for number, text in enumerate(texts) if _occurrences(plain, text)]
            if is_whole and is_single and is_long and where == [session] and plain not in found:
                found[plain] = Cloze(conversation.id, session, sentence, answer)
    return list(found.values())


def make_probes(
    conversations: Sequence[Conversation], users: Sequence[str], *, per_period: int, traps: int, seed: int = 0
) -> list[dict[str, Any]]:
    """Probes in the format of :mod:`mlmf.data.locco`, drawn by user and period.

    Args:
        conversations: all of a LOCCO file; traps are taken from the others.
        users: ids to make probes for.
        per_period: facts per user and period at most; some periods have fewer.
        traps: per user.
        seed: of the draw; the same on every machine.
    """
    by_user = {conversation.id: conversation for conversation in conversations}
    clozes = {user: find_clozes(conversation) for user, conversation in by_user.items()}
    everything = [cloze for found in clozes.values() for cloze in found]
    probes = []
    for user in users:
        count = len(by_user[user].sessions)
        said = "\n".join(turn.text for turn in by_user[user].turns).casefold()
        chosen: list[Cloze] = []
        for period in range(1, PERIODS + 1):
            mine = [cloze for cloze in clozes[user] if period_of(cloze.session, count) == period]
            drawn = random.Random(f"{seed} {user} {period}").sample(mine, min(per_period, len(mine)))
            chosen += sorted(drawn, key=mine.index)
        rng = random.Random(f"{seed} {user} traps")
        foreign = [c for c in everything if c.user != user and not _occurrences(c.answer.casefold(), said)]
        probes += [_fact(cloze, number, count) for number, cloze in enumerate(chosen)]
        probes += [
            _trap(cloze, user, len(chosen) + number, rng.randrange(count))
            for number, cloze in enumerate(rng.sample(foreign, min(traps, len(foreign))))
        ]
    return probes


def _fact(cloze: Cloze, number: int, n_sessions: int) -> dict[str, Any]:
    return {
        "id": f"{cloze.user}-c{number:02}",
        "user": int(cloze.user),
        "kind": "fact",
        "period": period_of(cloze.session, n_sessions),
        "session": cloze.session,
        "question": cloze.question,
        "answer": cloze.answer,
        "evidence": cloze.sentence,
    }


def _trap(cloze: Cloze, user: str, number: int, session: int) -> dict[str, Any]:
    return {
        "id": f"{user}-c{number:02}",
        "user": int(user),
        "kind": "trap",
        "session": session,
        "question": cloze.question,
        "lure": cloze.answer,
    }


def _sentences(conversation: Conversation) -> Iterator[tuple[int, str]]:
    for session in conversation.sessions:
        for turn in session.turns:
            if turn.speaker == SPEAKERS[0]:
                for match in _SENTENCE.finditer(turn.text):
                    yield session.index, match[0].strip()


def _occurrences(span: str, text: str) -> list[str]:
    # most texts do not hold the span at all, and finding that out needs no pattern
    return [] if span not in text else re.findall(rf"(?<!\w){re.escape(span)}(?!\w)", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: write the probes, print how many there are and the sha256; 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m mlmf.data.cloze", description="Cloze probes about LOCCO users.")
    parser.add_argument(
        "--size", choices=get_args(Size), default="standard", help="LOCCO, or LOCCO-L with long histories"
    )
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--per_period", type=int, default=3, help="facts per user and period at most")
    parser.add_argument("--traps", type=int, default=4, help="traps per user")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        check_writable_folder(options.output.parent, "output")
        conversations = load_locco(options.size)
        written = {
            str(probe.user)
            for split in ("train", "test")
            for probe in load_probes(split)
            if options.size == "standard"
        }
        users = [one.id for one in conversations if one.id not in written]
        probes = make_probes(
            conversations, users, per_period=options.per_period, traps=options.traps, seed=options.seed
        )
        atomic_write_text(options.output, "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in probes))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = [probe for probe in probes if probe["kind"] == "fact"]
    periods = ", ".join(str(sum(one["period"] == period for one in facts)) for period in range(1, PERIODS + 1))
    print(
        f"{options.output}: {len(facts)} facts (by period {periods}), {len(probes) - len(facts)} traps, {len(users)} users"
    )
    print(f"sha256 {sha256_of(options.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
