from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from mlmf.abstention import ABSTENTION
from mlmf.data.tasks import load_task
from mlmf.memory.entities import FUNCTION_WORDS
from mlmf.training.cloze import LONGEST_GAP, Gap, session_gaps
from mlmf.training.examples import build_examples
from mlmf.types import Conversation, Session, Turn

PEOPLE = {"User": "Anna", "Bot": "Ben"}


@pytest.fixture(scope="module")
def users() -> Sequence[Conversation]:
    return load_task("locco", split="train").conversations[:6]


def gaps_of(users: Sequence[Conversation], seed: int = 0, count: int = 3) -> list[tuple[Conversation, Gap]]:
    return [
        (user, gap)
        for user in users
        for session in user.sessions
        for gap in session_gaps(user, session, users, count, seed)
    ]


def test_a_gap_is_a_part_of_what_the_user_said_there(users: Sequence[Conversation]) -> None:
    own = [(user, gap) for user, gap in gaps_of(users) if gap.place is not None]
    assert len(own) > 300
    for user, gap in own:
        session, i = gap.place or (-1, -1)
        turn = user.sessions[session].turns[i]
        assert turn.speaker == "User" and gap.answer and gap.answer in turn.text
        assert gap.question.startswith("What did I say") and gap.question.count("___") == 1
        first, *_, last = [word.strip(".,!?;:\"'").lower() for word in f"{gap.answer} {gap.answer}".split()]
        assert first not in FUNCTION_WORDS and last not in FUNCTION_WORDS
        assert len(gap.answer.split()) <= LONGEST_GAP


def test_some_gaps_are_in_what_somebody_else_said_and_have_no_answer(users: Sequence[Conversation]) -> None:
    gaps = gaps_of(users)
    foreign = [(user, gap) for user, gap in gaps if gap.place is None]
    assert all(gap.answer is None for _, gap in foreign)
    assert 0.05 < len(foreign) / len(gaps) < 0.2
    # nobody else to quote: no such gap
    assert all(gap.place for _, gap in gaps_of(users[:1]))


def test_the_same_seed_gives_the_same_gaps_and_another_one_others(users: Sequence[Conversation]) -> None:
    assert gaps_of(users) == gaps_of(users)
    assert gaps_of(users) != gaps_of(users, seed=1)


def test_the_words_that_stay_are_those_of_the_sentence_in_order(users: Sequence[Conversation]) -> None:
    shortened = 0
    for user, gap in gaps_of(users):
        if gap.place is None:
            continue
        said = user.sessions[gap.place[0]].turns[gap.place[1]].text.split()
        kept = gap.question.split("gap: ")[1].removesuffix("?").split()
        rest = iter(word.rstrip(".!?") for word in said)
        assert all(any(word.rstrip(".!?") == other for other in rest) for word in kept if word != "___")
        shortened += len(kept) < 7
    assert shortened > 50


def test_other_speakers_are_named_and_assistants_left_out() -> None:
    text = "I sold the old piano to a museum in Leiden last week"
    turns = (Turn("a", "Anna", text), Turn("b", "Assistant", text))
    talk = Conversation("x", (Session(0, datetime(2023, 5, 8), turns),))
    found = [gap for seed in range(20) for gap in session_gaps(talk, talk.sessions[0], [talk], 5, seed)]
    assert found and all(gap.place == (0, 0) for gap in found)
    starts = {gap.question.split(" in place")[0] for gap in found}
    assert starts == {"What did Anna say", "What did Anna say in May 2023"}


@pytest.fixture(scope="module")
def pairs(users: Sequence[Conversation]) -> list[Conversation]:
    """The same dialogues between two people: what the assistant said is Ben's."""
    return [
        replace(
            user,
            sessions=tuple(
                replace(session, turns=tuple(replace(t, speaker=PEOPLE[t.speaker]) for t in session.turns))
                for session in user.sessions
            ),
        )
        for user in users
    ]


def test_some_gaps_ask_the_other_person_who_never_said_it(pairs: Sequence[Conversation]) -> None:
    swapped = total = 0
    for pair in pairs:
        people = PEOPLE.values()
        said = {speaker: " ".join(t.text for t in pair.turns if t.speaker == speaker) for speaker in people}
        for session in pair.sessions:
            # without foreign sentences: nobody else to quote
            for gap in session_gaps(pair, session, [pair], 3, seed=0):
                asked = next(speaker for speaker in people if gap.question.startswith(f"What did {speaker} say"))
                total += 1
                assert gap.place is not None
                turn = session.turns[gap.place[1]]
                if gap.answer is None:
                    swapped += 1
                    assert turn.speaker != asked
                else:
                    assert turn.speaker == asked and gap.answer in said[asked]
    assert 0.05 < swapped / total < 0.2


def test_short_sentences_make_no_gap() -> None:
    talk = Conversation("x", (Session(0, None, (Turn("a", "Anna", "I did. You did. We all did it."),)),))
    assert not list(session_gaps(talk, talk.sessions[0], [talk], 5, 0))


def test_examples_need_the_session_and_know_the_evidence(users: Sequence[Conversation]) -> None:
    built = build_examples(users, ["cloze"], gaps_per_session=2)
    assert len(built) > 200
    for one in built:
        assert one.prompt == f"Question: {one.query}\nAnswer:" and one.pool == len(users[one.conversation].sessions)
        if one.target == ABSTENTION:
            assert (one.needed, one.evidence) == ((), ())
        else:
            assert one.evidence and one.needed == (one.evidence[0][0],)


def test_untested_users_are_all_but_the_test_ones() -> None:
    untested = load_task("locco", split="untested").conversations
    train, test = ({one.id for one in load_task("locco", split=split).conversations} for split in ("train", "test"))
    ids = {one.id for one in untested}
    assert len(ids) == 88 and train < ids and not ids & test
    assert {one.id for one in untested if one.questions} == train


def test_what_the_other_person_said_is_in_memory_and_no_evidence(pairs: Sequence[Conversation]) -> None:
    built = build_examples(pairs, ["cloze"])
    swapped = [one for one in built if one.target == ABSTENTION and one.needed]
    assert swapped and all(one.evidence == () for one in swapped)
