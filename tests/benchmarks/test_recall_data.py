"""What the learners are given: a closed vocabulary, batches of the right make-up, and cells at the right distance."""

from __future__ import annotations

import pytest

from benchmarks.recall_data import CATEGORIES, cell, gold, training_batch, word_tokenizer
from mlmf.data.synthetic import FACT, NEVER_TOLD, UPDATE, distance
from mlmf.memory.features import session_pieces
from mlmf.types import answer_prompt


def test_every_word_is_in_the_vocabulary_and_comes_back() -> None:
    tokenizer = word_tokenizer()
    for asked in training_batch("words", 16, 64, 64):
        texts = [piece for session in asked.conversation.sessions for piece in session_pieces(session)]
        texts += [answer_prompt(question.query) for question in asked.questions]
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.pad_token_id not in ids
            assert "".join(tokenizer.convert_ids_to_tokens(ids)) == text.replace(" ", "")
        for question in asked.questions:
            assert len(tokenizer(gold(question), add_special_tokens=False)["input_ids"]) == 1


def test_batches_hold_as_much_at_every_length() -> None:
    for most in (1, 4, 16):
        batches = [training_batch(f"size {i}", most) for i in range(12)]
        sessions = [sum(len(asked.conversation.sessions) for asked in batch) for batch in batches]
        assert 8 <= sum(sessions) / len(sessions) <= 32
        assert max(len(asked.conversation.sessions) for batch in batches for asked in batch) == most
        kinds = [question.category for batch in batches for asked in batch for question in asked.questions]
        assert 0.15 < kinds.count(NEVER_TOLD) / len(kinds) < 0.4
        assert (UPDATE in kinds) == (most > 1)
    assert training_batch("same", 4) == training_batch("same", 4)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("sessions", [1, 5])
def test_cells_ask_at_the_distance_they_say(category: int, sessions: int) -> None:
    asked = list(cell(category, sessions, 12))
    questions = [(one.conversation, question) for one in asked for question in one.questions]
    assert len(questions) == 12
    for conversation, question in questions:
        assert question.category == category
        assert distance(conversation, question) == sessions
        assert len(conversation.sessions) == sessions + (2 if category == UPDATE else 0)
        if category == FACT:
            assert question.session == 0
