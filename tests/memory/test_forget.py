"""Forgetting is proved two ways: against a state that never knew, and by changing what is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest
import torch

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory import semantic
from mlmf.memory.forget import survivors, what_goes
from mlmf.memory.nodes import Node
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

TOLD = (
    ("I adopted a cat called Miso", "lovely, and your sister?", "she lives in Oslo"),
    ("We sold the old boat to Otto", "for how much?"),
    ("Miso ate the plant", "poor Miso"),
    ("I start at Norsk on Monday", "good luck", "Otto works there too"),
    ("We sold the old boat to Otto", "so you said"),
)


def session(index: int, texts: Sequence[str]) -> Session:
    turns = (Turn(f"D{index}:{i}", ("Anna", "Ben")[i % 2], text) for i, text in enumerate(texts))
    return Session(index, datetime(2023, 5, 2 * index + 1, 12), tuple(turns))


SESSIONS = [session(i, texts) for i, texts in enumerate(TOLD)]


@pytest.fixture(scope="module", params=["routed", "scalar", "per_slot", "int8"])
def model(request: pytest.FixtureRequest) -> MLMFModel:
    if request.param == "int8":
        return build(slots="int8", code_dim=32)
    return build(alpha_mode=request.param)


def build(**settings: object) -> MLMFModel:
    config = MLMFConfig(**{"key_dim": 16, "k": 4, "c_w": 4, "c_e": 4, "lora": LoraSettings(r=0), **settings})  # type: ignore[arg-type]
    made = MLMFModel(tiny_model("llama"), tiny_tokenizer(), config).eval()
    if made.memory.semantic is not None:  # salience that reads what is forgotten
        torch.nn.init.normal_(made.memory.semantic.salience.weight)
    return made


@torch.no_grad()
def remembered(model: MLMFModel, sessions: Sequence[Session]) -> MemoryState:
    state = model.init_state()
    for past in sessions:
        state = model.remember([past], state)
    return state


def assert_same(one: MemoryState, other: MemoryState, *, but: Sequence[str] = (), tolerance: float = 0) -> None:
    for name, tensor in one._tensors().items():
        if name not in but:
            torch.testing.assert_close(tensor, getattr(other, name), rtol=0, atol=tolerance, msg=name)
    for name in ("nodes", "sessions", "latest"):
        assert name in but or getattr(one, name) == getattr(other, name), name


WORKING = ("working", "working_mask", "latest")


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_after_a_session_is_forgotten_the_state_is_one_that_never_saw_it(model: MLMFModel, k: int) -> None:
    state = remembered(model, SESSIONS)
    never = remembered(model, [past for past in SESSIONS if past.index != k])
    assert_same(model.memory.forget(state, session=k), never)


def test_the_last_session_leaves_working_memory_empty(model: MLMFModel) -> None:
    left = model.memory.forget(remembered(model, SESSIONS), session=4)
    assert_same(left, remembered(model, SESSIONS[:4]), but=WORKING)
    assert not left.working.any() and not left.working_mask.any() and left.latest == (-1,)
    again = model.remember([session(5, ("hello",))], left)
    assert again.latest == (5,) and again.working_mask.any()


def test_what_the_forgotten_session_superseded_is_found_again() -> None:
    exact = build(tau_s=0.999)
    state = remembered(exact, SESSIONS)
    turn = next(i for i, node in enumerate(state.nodes[0]) if node.turn_id == "D1:0")
    assert state.nodes[0][turn].superseded_by == (4, 0)
    left = exact.memory.forget(state, session=4)
    assert not any(node.superseded for node in left.nodes[0])
    assert_same(left, remembered(exact, SESSIONS[:4]), but=WORKING)


def other(past: Session, turn: int) -> Session:
    """The same session with another text from a turn on."""
    turns = tuple(replace(t, text="entirely else " * 3) if i >= turn else t for i, t in enumerate(past.turns))
    return replace(past, turns=turns)


@pytest.mark.parametrize("k", range(5))
def test_nothing_left_depends_on_what_the_session_said(model: MLMFModel, k: int) -> None:
    changed = [other(past, 0) if past.index == k else past for past in SESSIONS]
    one, two = (model.memory.forget(remembered(model, told), session=k) for told in (SESSIONS, changed))
    assert_same(one, two)


def test_since_a_day_forgets_it_and_all_that_came_after(model: MLMFModel) -> None:
    state = remembered(model, SESSIONS)
    for since in (date(2023, 5, 5), datetime(2023, 5, 5, 12), datetime(2023, 5, 4)):
        assert_same(model.memory.forget(state, since=since), remembered(model, SESSIONS[:2]), but=WORKING)
    assert_same(
        model.memory.forget(state, since=datetime(2023, 5, 5, 13)), remembered(model, SESSIONS[:3]), but=WORKING
    )
    assert_same(model.memory.forget(state, since=date(2024, 1, 1)), state)


def test_an_entity_takes_the_rest_of_its_sessions_along(model: MLMFModel) -> None:
    """Later tokens of a session have read the earlier ones, so they go too; what came before the mention stays."""
    state = remembered(model, SESSIONS)
    left = model.memory.forget(state, entity="Otto")
    turns = [node.turn_id for node in left.nodes[0] if not node.is_session]
    assert turns == ["D0:0", "D0:1", "D0:2", "D2:0", "D2:1", "D3:0", "D3:1"]
    # sessions 1 and 4 are gone, their date lines with them; working memory held the end of session 4
    assert left.sessions == (3,) and left.latest == (-1,)
    told = [SESSIONS[0], SESSIONS[2], replace(SESSIONS[3], turns=SESSIONS[3].turns[:2])]
    # a shorter session is read by products of another shape, which round in another way
    assert_same(left, remembered(model, told), but=WORKING, tolerance=1e-5)
    changed = [SESSIONS[0], other(SESSIONS[1], 0), SESSIONS[2], other(SESSIONS[3], 2), other(SESSIONS[4], 0)]
    named = [replace(s, turns=tuple(replace(t, text=f"{t.text} Otto") if "else" in t.text else t for t in s.turns))
             for s in changed]  # fmt: skip
    assert_same(model.memory.forget(remembered(model, named), entity="otto "), left, tolerance=1e-5)


def test_a_speaker_is_an_entity_too(model: MLMFModel) -> None:
    left = model.memory.forget(remembered(model, SESSIONS), entity="Ben")
    assert [node.turn_id for node in left.nodes[0] if not node.is_session] == [f"D{i}:0" for i in range(5)]


def test_everything_forgotten_is_an_empty_memory(model: MLMFModel) -> None:
    left = model.memory.forget(remembered(model, SESSIONS), entity="anna")
    assert left.is_empty() and left.nodes == ((),) and left.sessions == (0,)
    assert_same(left, model.init_state())
    ids = torch.tensor([[40, 41, 42]])
    assert torch.equal(model(ids, state=left).logits, model(ids).logits)


def test_no_word_of_it_is_in_the_file(model: MLMFModel, tmp_path: Path) -> None:
    state = remembered(model, SESSIONS)
    state.save(tmp_path / "before.safetensors")
    model.memory.forget(state, entity="Miso").save(tmp_path / "after.safetensors")
    assert b"Miso" in (tmp_path / "before.safetensors").read_bytes()
    after = (tmp_path / "after.safetensors").read_bytes()
    assert not any(word in after for word in (b"Miso", b"miso", b"adopted", b"Oslo", b"plant")) and b"boat" in after


def test_only_one_conversation_forgets_and_the_given_state_stays(model: MLMFModel) -> None:
    one, two = remembered(model, SESSIONS), remembered(model, SESSIONS[2:])
    both = MemoryState.cat([one, two])
    left = model.memory.forget(both, 1, session=2).split()
    assert_same(left[0], one)
    assert_same(left[1], remembered(model, SESSIONS[3:]))
    assert_same(both.split()[1], two)


@pytest.mark.parametrize("mode", ["scalar", "routed"])
def test_a_session_that_only_the_blends_still_hold_is_forgotten_too(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "LENGTH", 0.0)  # the oldest are pruned, long or short
    model = build(c_s=6, alpha_mode=mode)
    torch.nn.init.zeros_(model.memory.semantic.salience.weight)
    told = [session(i, ("nothing is named in here", f"nor there, {i} times")) for i in range(4)]
    changed = [session(0, ("what is this about", "who could ever say")), *told[1:]]
    one, two = remembered(model, told), remembered(model, changed)
    # session 0 was pruned from the nodes of both; its words are in the blends alone
    assert one.nodes == two.nodes and {node.session for node in one.nodes[0]} == {2, 3}
    assert not torch.equal(one.episodic, two.episodic)
    assert_same(model.memory.forget(one, session=0), model.memory.forget(two, session=0))


@pytest.mark.parametrize("word", ["plant", "PLANT", "sister", "times", "Anna", "otto"])
def test_no_line_says_a_forgotten_word(model: MLMFModel, word: str) -> None:
    """Whether the extractor took it for an entity or not; the month in a date line is no word of the conversation."""
    left = model.memory.forget(remembered(model, SESSIONS), entity=word)
    assert not any(word.lower() in node.line.lower() for node in left.nodes[0])
    may = model.memory.forget(remembered(model, SESSIONS), entity="May")
    assert may.nodes == remembered(model, SESSIONS).nodes


def test_without_semantic_memory_the_blends_go_and_an_entity_is_unknown() -> None:
    model = build(semantic=False)
    state = remembered(model, SESSIONS)
    left = model.memory.forget(state, session=1)
    assert not left.episodic.any() and not left.episodic_mask.any()
    assert torch.equal(left.working, state.working) and left.latest == (4,)
    assert model.memory.forget(state, session=4).is_empty()
    with pytest.raises(UserError, match="without semantic memory"):
        model.memory.forget(state, entity="miso")


def test_one_thing_at_a_time_and_a_row_that_exists(model: MLMFModel) -> None:
    state = remembered(model, SESSIONS[:1])
    with pytest.raises(UserError, match="got none"):
        model.memory.forget(state)
    with pytest.raises(UserError, match="got session, entity"):
        model.memory.forget(state, session=0, entity="miso")
    with pytest.raises(UserError, match="no conversation 1 in a state of 1"):
        model.memory.forget(state, 1, session=0)


def test_a_session_of_unknown_date_goes_with_the_later_ones() -> None:
    def turn(s: int, day: str | None) -> Node:
        return Node(s, 0, f"D{s}", "line", date=day)

    nodes = [turn(0, "2023-05-01T00:00:00"), turn(1, None), turn(2, "2023-05-05T00:00:00"), turn(4, None)]
    gone = what_goes(nodes, since=date(2023, 5, 7))
    assert [s for s in range(6) if gone(s, 0)] == [3, 4, 5]
    assert survivors(nodes, gone) == [0, 1, 2]
    # a session out of order goes by its date
    assert what_goes([*nodes, turn(1, "2023-06-01T00:00:00")], since=date(2023, 5, 7))(1, 0)


def test_a_zone_does_not_keep_a_session_from_being_forgotten() -> None:
    nodes = [Node(s, 0, f"D{s}", "line", date=f"2023-05-0{s + 1}T00:00:00+00:00") for s in range(3)]
    for since in (date(2023, 5, 2), datetime(2023, 5, 2, tzinfo=timezone.utc)):
        gone = what_goes(nodes, since=since)
        assert [gone(s, 0) for s in range(3)] == [False, True, True]
