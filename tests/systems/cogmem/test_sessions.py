"""Which stored dialogue an input continues; shared turns stay as long as somebody needs them, and no longer."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from mlmf.systems.cogmem.records import Note, NoteUpdate, SessionRecord, TurnRecord, said_in_exchange
from mlmf.systems.cogmem.sessions import Exchange, Found, SessionManager
from mlmf.systems.cogmem.stores import Records, SessionStore, SqliteStore

HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def manager(store: SessionStore | None = None, clock: Clock | None = None) -> SessionManager:
    return SessionManager(store or SqliteStore(), lifetime=HOUR, now=clock or Clock())


def talk(sessions: SessionManager, user: str, dialogue: list[Exchange], opening: str = "") -> Found:
    """What ``find`` gave for the last input; every input is answered."""
    for number, (said, reply) in enumerate(dialogue):
        found = sessions.find(user, dialogue[:number], said, opening=opening)
        session = found.session
        if found.reply is None:
            for earlier, answer in found.unknown:
                session, _ = sessions.append(user, session, said_in_exchange(earlier, answer), opening=opening)
            sessions.append(user, session, said_in_exchange(said, reply), asked=said, reply=reply, opening=opening)
    return found


def check(sessions: SessionManager, user: str) -> int:
    """Every count is right, nothing points nowhere, nothing is left over. Returns the number of turns."""

    def read(records: Records) -> int:
        turns = {key: TurnRecord.model_validate_json(text) for key, text in records.all("turn").items()}
        heads = [SessionRecord.model_validate_json(text).head for text in records.all("session").values()]
        counted = Counter([head for head in heads if head] + [turn.parent for turn in turns.values() if turn.parent])
        assert counted == {key: turn.references for key, turn in turns.items()}
        assert set(records.all("answer").values()) | set(records.all("pending")) <= set(turns)
        return len(turns)

    return sessions.store.change(user, read)


def test_a_dialogue_that_comes_back_is_answered_from_the_store(store: SessionStore) -> None:
    sessions = manager(store)
    dialogue = [("hi", "hello"), ("a cat?", "yes"), ("why?", "because")]
    assert talk(sessions, "ann", dialogue).state == "inherited"
    again = sessions.find("ann", dialogue[:2], "why?")
    assert (again.state, again.reply) == ("exact", "because")
    assert len(sessions.sessions("ann")) == 1
    assert sessions.find("ben", dialogue[:2], "why?").state == "new"
    assert sessions.find("ann", dialogue[:2], "why?", opening="You are a pirate").state == "new"


def test_the_longest_stored_beginning_is_inherited_with_its_notes(store: SessionStore) -> None:
    sessions = manager(store)
    talk(sessions, "ann", [("hi", "hello"), ("a cat?", "yes"), ("why?", "because")])
    second = sessions.turns("ann", sessions.sessions("ann")[0].head)[1]
    note = Note(kind="conclusion", text="a cat", turn="T2")
    sessions.settle("ann", second.key, NoteUpdate(notes=(note,), summary="about a cat"))
    found = sessions.find("ann", [("hi", "hello"), ("a cat?", "yes"), ("what?", "a dog")], "really?")
    assert found.state == "inherited"
    assert [turn.label for turn in found.turns] == ["T1", "T2"]
    assert found.turns[-1].notes == (note,)
    assert found.unknown == (("what?", "a dog"),)
    assert len(sessions.sessions("ann")) == 2
    check(sessions, "ann")


def test_going_on_extends_the_session_and_going_back_begins_another() -> None:
    sessions = manager()
    talk(sessions, "ann", [("hi", "hello"), ("a cat?", "yes")])
    assert len(sessions.sessions("ann")) == 1
    talk(sessions, "ann", [("hi", "hello"), ("a dog?", "no")])
    assert len(sessions.sessions("ann")) == 2
    assert check(sessions, "ann") == 3  # the first turn is shared


def test_a_session_is_over_when_it_is_ended_or_not_used_and_its_own_turns_go_with_it() -> None:
    clock = Clock()
    sessions = manager(clock=clock)
    talk(sessions, "ann", [("hi", "hello"), ("a cat?", "yes")])
    clock.time += HOUR / 2
    talk(sessions, "ann", [("hi", "hello"), ("a dog?", "no")])
    clock.time += HOUR * 0.75
    (old,) = sessions.over("ann")
    assert sessions.remove("ann", old)
    assert check(sessions, "ann") == 2  # "hi" stands under the other session
    assert sessions.find("ann", [("hi", "hello")], "a cat?").state == "inherited"
    for session in sessions.sessions("ann"):
        sessions.end("ann", session.id)
    assert all(sessions.remove("ann", session) for session in sessions.over("ann"))
    assert check(sessions, "ann") == 0
    assert sessions.pending("ann") == []


def test_a_session_used_again_before_its_removal_stays() -> None:
    clock = Clock()
    sessions = manager(clock=clock)
    talk(sessions, "ann", [("hi", "hello")])
    clock.time += 2 * HOUR
    (old,) = sessions.over("ann")
    talk(sessions, "ann", [("hi", "hello"), ("still there?", "yes")])
    assert not sessions.remove("ann", old)
    assert check(sessions, "ann") == 2


def test_a_turn_added_after_the_end_of_its_session_begins_a_dialogue() -> None:
    sessions = manager()
    talk(sessions, "ann", [("hi", "hello")])
    (session,) = sessions.sessions("ann")
    sessions.end("ann", session.id)
    sessions.remove("ann", sessions.over("ann")[0])
    moved, turn = sessions.append("ann", session, said_in_exchange("late", "reply"))
    assert (turn.parent, turn.number, moved.head) == (None, 1, turn.key)
    assert check(sessions, "ann") == 1


def test_two_who_go_on_at_once_from_the_same_turn_both_keep_theirs(store: SessionStore) -> None:
    sessions = manager(store)
    talk(sessions, "ann", [("hi", "hello")])
    (session,) = sessions.sessions("ann")
    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(lambda n: sessions.append("ann", session, said_in_exchange(f"say {n}", "ok"))[0], range(4))
        )
    assert len({one.id for one in done}) == 4
    assert check(sessions, "ann") == 5


words = st.sampled_from(["a", "b"])
dialogues = st.lists(st.tuples(words, words), min_size=1, max_size=4)
removal = st.integers(0, 9)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(["ann", "ben"]), dialogues | removal), max_size=8))
def test_whatever_is_said_and_removed_every_turn_that_is_needed_is_there_and_no_other(
    steps: list[tuple[str, list[Exchange] | int]],
) -> None:
    sessions = manager()
    for user, step in steps:
        others = {name: sessions.sessions(name) for name in ("ann", "ben") if name != user}
        if isinstance(step, int):
            for session in sessions.sessions(user)[step : step + 1]:
                sessions.end(user, session.id)
                assert sessions.remove(user, session)
        else:
            talk(sessions, user, step)
        check(sessions, user)
        assert {name: sessions.sessions(name) for name in others} == others
    for user in ("ann", "ben"):
        for session in sessions.sessions(user):
            assert [turn.number for turn in sessions.turns(user, session.head)] == list(
                range(1, len(sessions.turns(user, session.head)) + 1)
            )
            sessions.end(user, session.id)
            sessions.remove(user, session)
        assert check(sessions, user) == 0
