from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlmf.abstention import ABSTENTION
from mlmf.errors import UserError
from mlmf.tiny import tiny_tokenizer
from mlmf.training import examples as module
from mlmf.training.examples import Example, build_examples, tokenise
from mlmf.types import Conversation, Question, answer_prompt

TOKENIZER = tiny_tokenizer()


def test_answers_need_the_session_of_their_evidence(conversations: Sequence[Conversation]) -> None:
    built = build_examples(conversations, ["answer"])
    assert len(built) == 10
    question = conversations[1].questions[2]
    assert built[7] == Example(1, (2,), 5, question.text, answer_prompt(question.query), "white", ((2, 0),))


def test_a_trap_is_answered_with_an_abstention_and_needs_nothing(conversations: Sequence[Conversation]) -> None:
    trap = build_examples(conversations, ["answer"])[4]
    assert (trap.needed, trap.target, trap.evidence) == ((), ABSTENTION, ())
    assert "pink" not in trap.prompt + trap.target


def test_evidence_in_several_sessions_and_a_named_session_are_all_needed(
    conversations: Sequence[Conversation],
) -> None:
    question = Question("anna", 0, "Which?", "both", evidence=("S3:0", "S0:1", "S3:1", "unknown"), session=1)
    one = replace(conversations[0], questions=(question,))
    built = build_examples([one], ["answer"])[0]
    assert built.needed == (0, 1, 3)
    assert built.evidence == ((0, 1), (3, 0), (3, 1))


def test_turns_named_beside_a_question_without_answer_are_no_evidence(conversations: Sequence[Conversation]) -> None:
    misleading = Question("anna", 0, "Which?", None, evidence=("S3:0",))
    silent = Question("anna", 1, "Which?", "both", evidence=("gone",))
    one = replace(conversations[0], questions=(misleading, silent))
    assert [built.evidence for built in build_examples([one], ["answer"])] == [(), None]


def test_replies_see_only_what_came_before(conversations: Sequence[Conversation]) -> None:
    built = build_examples(conversations, ["reply"])
    assert len(built) == 2 * 4  # one reply in each session but the first
    for number, one in enumerate(built):
        conversation, session = conversations[number // 4], number % 4 + 1
        first, reply = conversation.sessions[session].turns
        assert (one.pool, one.needed, one.target, one.evidence) == (session, (), "good to know", None)
        assert one.prompt == f"{first.speaker}: {first.text}\nBen:"
        assert one.query == f"{first.speaker}: {first.text}"
        assert reply.text not in one.prompt


def test_a_reply_is_given_the_last_turns_only(conversations: Sequence[Conversation]) -> None:
    talk = conversations[0]
    long = replace(talk.sessions[1], turns=talk.sessions[1].turns * 4)
    built = build_examples([replace(talk, sessions=(talk.sessions[0], long))], ["reply"], max_reply_turns=2)
    assert [one.prompt.count("\n") for one in built] == [1, 2, 2, 2, 2, 2, 2]


def test_both_objectives_come_conversation_by_conversation(conversations: Sequence[Conversation]) -> None:
    built = build_examples(conversations, ["answer", "reply"])
    assert [one.conversation for one in built] == [0] * 9 + [1] * 9


def test_nothing_to_train_on(conversations: Sequence[Conversation]) -> None:
    with pytest.raises(UserError, match="reply at least two sessions"):
        build_examples([replace(conversations[0], sessions=conversations[0].sessions[:1])], ["reply"])
    with pytest.raises(UserError, match="nothing to train on"):
        build_examples([], ["answer"])


def test_ids_are_cut_and_the_target_ends(conversations: Sequence[Conversation], tmp_path: Path) -> None:
    built = build_examples(conversations, ["answer"])
    data, _ = tokenise(built, TOKENIZER, tmp_path, max_prompt_tokens=20, max_target_tokens=10)
    assert len(data) == 10
    assert TOKENIZER.decode(data[0]["prompt"]) == built[0].prompt[-20:]
    assert TOKENIZER.decode(data[0]["query"]) == built[0].query[-20:]
    assert data[0]["target"] == [*TOKENIZER(" red")["input_ids"], TOKENIZER.eos_token_id]
    assert data[4]["target"] == [*TOKENIZER(" " + ABSTENTION)["input_ids"][:9], TOKENIZER.eos_token_id]
    assert (data[7]["conversation"], data[7]["needed"], data[7]["pool"]) == (1, [2], 5)
    assert (data[7]["evidence"], data[4]["evidence"]) == ([[2, 0]], [])
    replies, _ = tokenise(
        build_examples(conversations, ["answer", "reply"]), TOKENIZER, tmp_path,
        max_prompt_tokens=20, max_target_tokens=10,
    )  # fmt: skip
    assert [row["evidence"] for row in replies][4:6] == [[], None]


def test_the_same_examples_are_tokenised_once(
    conversations: Sequence[Conversation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_examples(conversations, ["answer"])
    limits = {"max_prompt_tokens": 64, "max_target_tokens": 16}
    first, _ = tokenise(built, TOKENIZER, tmp_path, **limits)
    tokenise(built[:-1], TOKENIZER, tmp_path, **limits)
    tokenise(built, TOKENIZER, tmp_path, max_prompt_tokens=63, max_target_tokens=16)
    assert len(list((tmp_path / "examples").iterdir())) == 3  # and no temporary folder among them

    def never(*_: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr(module, "_ids", never)
    again, _ = tokenise(built, TOKENIZER, tmp_path, **limits)
    assert again.to_list() == first.to_list()


def test_the_cache_is_no_matter_of_chance(conversations: Sequence[Conversation], tmp_path: Path) -> None:
    built = build_examples(conversations, ["answer"])
    limits = {"max_prompt_tokens": 64, "max_target_tokens": 16}
    random.seed(5)
    before = random.getstate()
    _, one_key = tokenise(built, TOKENIZER, tmp_path / "one", **limits)
    # a run that finds a filled cache draws the numbers of one that does not
    assert random.getstate() == before
    _, other_key = tokenise(built, TOKENIZER, tmp_path / "other", **limits)
    # a checkpoint is taken up where the cache was lost, or on another machine
    assert one_key == other_key
