"""Talking to CogMem: sessions are found again, windows stay small, users are apart, ended sessions leave insights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlmf.errors import UserError
from mlmf.llm.chat import Message
from mlmf.systems.cogmem.chat import CogMemChat, split_messages
from mlmf.systems.cogmem.memory import CogMem
from tests.systems.cogmem.doubles import ScriptedModel, cogmem, count_words

BASELINE = {"focus_of_attention": False, "direct_access": False, "long_term": False}
FOCUS = {"direct_access": False, "long_term": False}
FACTS = [f"Fact {n}: my {thing} number {n} is in the garden since May." for n in range(10) for thing in ("cat", "dog")]


def talk(memory: CogMem, turns: list[str], user: str = "user", system: str = "") -> ScriptedModel:
    model = ScriptedModel(lambda said: f"I see {len(model.read)}.")
    chat = CogMemChat(memory, model, user=user, system=system)
    for turn in turns:
        chat.respond(turn)
    return model


def messages(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(contents)]


def test_respond_talks_on_in_one_session() -> None:
    memory = cogmem()
    model = talk(memory, ["My cat is called Miso.", "Where is my cat Miso?"], system="Be brief.")
    assert "Be brief." in model.read[0][0].content
    assert "[T1] User: My cat is called Miso.\nAssistant: I see 1." in model.last
    assert model.last.endswith("The user now says:\nWhere is my cat Miso?")
    assert len(memory.sessions.sessions("user")) == 1


def test_what_was_answered_before_is_answered_from_the_store() -> None:
    memory, model = cogmem(), ScriptedModel()
    chat = CogMemChat(memory, model)
    first = chat.chat(messages("hi"))
    again = chat.chat(messages("hi"))
    assert (first.state, again.state, again.text, again.prompt_tokens) == ("new", "exact", first.text, 0)
    assert len(model.read) == 1


def test_a_conversation_that_took_place_elsewhere_is_taken_in() -> None:
    memory, model = cogmem(), ScriptedModel()
    chat = CogMemChat(memory, model)
    said = ["My cat is called Miso.", "Nice.", "My dog is called Rex.", "Good."]
    reply = chat.chat(messages(*said, "Who is Rex, my dog?"))
    assert reply.state == "new" and reply.recalled == ("T1", "T2")
    assert "[T2] User: My dog is called Rex.\nAssistant: Good." in model.last
    forked = chat.chat(messages(*said, "And Miso, my cat?"))
    assert forked.state == "inherited"
    assert len(memory.sessions.sessions("user")) == 2


def test_the_baseline_reads_everything_and_the_window_stays_small() -> None:
    baseline, small = talk(cogmem(**BASELINE), FACTS), talk(cogmem(focus_tokens=120), FACTS)
    cost = [[sum(count_words(m.content) for m in read) for read in model.read] for model in (baseline, small)]
    assert cost[0] == sorted(cost[0]) and cost[0][19] > 1.8 * cost[0][10]
    assert max(cost[1]) <= 120 + count_words(small.read[0][0].content) + count_words(FACTS[-1]) + 4
    assert [message.role for message in baseline.read[1]] == ["user", "assistant", "user"]


def test_each_part_is_seen_where_it_is_on_and_only_there() -> None:
    turns = ["My cat Miso moved to Oslo in May.", "My dog Rex is here.", "Where is my cat?"]
    for parts, notes in ((BASELINE, False), (FOCUS, False), ({"long_term": False}, True), ({}, True)):
        model = talk(cogmem(**parts), turns)
        assert ("Notes of this session:" in model.last) == notes
        assert ("Turns in full:" in model.last) == (parts != BASELINE)


def test_an_ended_session_leaves_insights_for_the_next_and_its_turns_go() -> None:
    memory, model = cogmem(), ScriptedModel()
    chat = CogMemChat(memory, model)
    chat.respond("My cat Miso moved to Oslo in May.")
    chat.end_session()
    assert memory.sessions.sessions("user") == []
    chat.respond("What about my cat?")
    assert "What earlier sessions taught:\n- User: My cat Miso moved to Oslo in May." in model.last
    assert "T1" not in model.last
    chat.respond("And the violin?")  # the session keeps what it began with
    assert "What earlier sessions taught:" in model.last
    memory.forget("user")
    model = talk(memory, ["What about my cat?"])
    assert "Miso" not in model.last


def test_a_session_that_nobody_uses_is_reviewed_and_removed_at_the_next_event() -> None:
    memory = cogmem(session_hours=1.0)
    talk(memory, ["My cat Miso moved to Oslo in May."])
    now = memory.sessions.now
    memory.sessions.now = lambda: now() + 7200
    model = talk(memory, ["hello"])
    memory.clean_up("user", wait=True)
    assert memory.long_term is not None
    assert [one.text for one in memory.long_term.insights("user").values()] == [
        "User: My cat Miso moved to Oslo in May."
    ]
    assert len(memory.sessions.sessions("user")) == 1
    assert len(model.read) == 1


def test_users_who_do_not_come_back_are_cleaned_up_by_the_events_of_others() -> None:
    memory = cogmem(session_hours=1.0)
    talk(memory, ["My cat Miso moved to Oslo in May."], user="ann")
    talk(memory, ["hello"], user="ben")
    assert memory.sessions.store.users() == ["ann", "ben"]
    now = memory.sessions.now
    memory.sessions.now = lambda: now() + 7200
    memory.clean_up("ben")
    memory.forget("nobody")  # comes after what the event has set off
    assert memory.sessions.sessions("ann") == [] and memory.sessions.pending("ann") == []
    assert memory.long_term is not None and len(memory.long_term.insights("ann")) == 1


def test_a_crash_between_review_and_removal_makes_no_insight_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = cogmem()
    chat = CogMemChat(memory, ScriptedModel())
    chat.respond("My cat Miso moved to Oslo in May.")

    def crash(*arguments: object) -> bool:
        raise OSError("gone")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="gone"):
        broken.setattr(memory.sessions, "remove", crash)
        chat.end_session()
    assert len(memory.sessions.over("user")) == 1
    memory.clean_up("user", wait=True)
    assert memory.long_term is not None
    assert len(memory.long_term.insights("user")) == 1
    assert memory.sessions.sessions("user") == []


def test_a_reply_that_fails_leaves_the_conversation_as_it_was() -> None:
    def fail(said: str) -> str:
        if said.endswith("now"):
            raise OSError("no server answers")
        return "ok"

    memory = cogmem()
    chat = CogMemChat(memory, ScriptedModel(fail))
    chat.respond("hi")
    with pytest.raises(OSError, match="no server"):
        chat.respond("fail now")
    assert chat.respond("and on") == "ok"
    assert [turn.number for turn in memory.sessions.turns("user", memory.sessions.sessions("user")[0].head)] == [1, 2]


def test_a_message_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"a message of 500 tokens does not fit into the window of scripted, 400"):
        CogMemChat(cogmem(), ScriptedModel(window=400)).respond("word " * 500)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "must end with a message of the user"),
        (messages("hi", "hello"), "must end with a message of the user"),
        ([Message("user", "a"), Message("user", "b")], r"message 2: its role is 'user', expected 'assistant'"),
        ([{"role": "tool", "content": "x"}], "a message needs the role system, user or assistant"),
        ([{"role": "user"}], "a message needs the role"),
    ],
)
def test_messages_that_are_no_conversation_are_refused(given: list[dict[str, str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        split_messages(given)


USERS = ("ann", "ben", 'ann"', "")
users = st.sampled_from(USERS)


@pytest.fixture(params=["ram", "file", "redis", "milvus"])
def shared(
    request: pytest.FixtureRequest, new_uri: Callable[[str], str | None], tmp_path: Path
) -> Iterator[Callable[[], CogMem]]:
    """Opens a memory on stores of each kind; what earlier ones left is deleted."""
    if request.param == "milvus":
        pytest.importorskip("milvus_lite")
        opened = [cogmem(vectors=str(tmp_path / "insights.db"))]
    else:
        opened = [cogmem(sessions=new_uri(request.param))]

    def empty() -> CogMem:
        for user in USERS:
            opened[0].forget(user)
        return opened[0]

    yield empty
    opened[0].close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(st.tuples(users, st.booleans()), min_size=1, max_size=8))
def test_no_user_ever_sees_what_another_said(shared: Callable[[], CogMem], said: list[tuple[str, bool]]) -> None:
    memory = shared()
    model = ScriptedModel()
    chats: dict[str, CogMemChat] = {}
    for number, (user, ends) in enumerate(said):
        chat = chats.setdefault(user, CogMemChat(memory, model, user=user))
        chat.respond(f"My cat {number} of user-{user}- lives in the garden.")
        others = {name for name, _ in said} - {user}
        assert not any(f"user-{other}-" in model.last for other in others)
        if ends:
            chat.end_session()


def test_many_users_at_once_each_get_their_own() -> None:
    memory, models = cogmem(), {f"user{n}": ScriptedModel() for n in range(4)}

    def use(user: str) -> None:
        chat = CogMemChat(memory, models[user], user=user)
        for number in range(5):
            chat.respond(f"My cat {number} of {user} lives in the garden.")
        chat.end_session()
        chat.respond("My cat in the garden?")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, models))
    for user, model in models.items():
        assert f"of {user} lives" in model.last
        assert not any(other in message.content for other in models if other != user for message in model.read[-1])
    assert memory.long_term is not None
    assert {user: len(memory.long_term.insights(user)) for user in models} == dict.fromkeys(models, 5)
    memory.close()
