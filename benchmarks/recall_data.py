"""What every learner of the recall benchmark is given: the vocabulary, batches to train on, and the cells to score."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mlmf.data.synthetic import FACT, NEVER_TOLD, UPDATE, RecallSpec, distance, recall_conversation, recall_texts
from mlmf.types import MONTHS, Conversation, Question, answer_prompt

CATEGORIES = {FACT: "facts", UPDATE: "updates", NEVER_TOLD: "never_told"}
UNKNOWN = "unknown"
"""What is to be answered where nothing was told: one word, as long as every other answer."""
PAD, END = "<pad>", "<end>"


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Words, punctuation marks and newlines of the task, one token each."""
    split = pre_tokenizers.Split(Regex(r"\n|\w+|[^\w\s]"), "removed", invert=True)
    days, years = map(str, range(1, 32)), map(str, range(2020, 2029))
    texts = (*recall_texts(), *MONTHS, *days, *years, answer_prompt_words(), UNKNOWN, "[ ] : . \n")
    words = [word for text in texts for word, _ in split.pre_tokenize_str(text)]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([PAD, END, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = split
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def answer_prompt_words() -> str:
    """The words that frame a question."""
    return answer_prompt(Question("", 0, "?", None).query)


def gold(question: Question) -> str:
    """The one word that answers a question."""
    return UNKNOWN if question.answer is None else question.answer


@dataclass(frozen=True)
class Asked:
    """A conversation, and the questions of it that are asked."""

    conversation: Conversation
    questions: tuple[Question, ...]


def training_batch(seed: str, most_sessions: int, sessions_in_batch: int = 16, questions: int = 48) -> list[Asked]:
    """Conversations of 1 to ``most_sessions`` sessions, the same for the same seed.

    Sessions and questions of a batch are about as many at every length, and so is the cost of a step. A quarter to a
    third of the questions is about what was never told, the rest about facts and updates alike as far as a conversation allows.
    """
    draw = random.Random(seed)
    batch = []
    count = max(2, round(2 * sessions_in_batch / (most_sessions + 1)))
    for i in range(count):
        spec = RecallSpec(sessions=draw.randint(1, most_sessions), update_share=draw.choice((0.2, 0.5)))
        conversation = recall_conversation(f"{seed} {i}", spec)
        batch.append(Asked(conversation, tuple(_balanced(conversation.questions, questions // count, draw))))
    return batch


def _balanced(questions: Sequence[Question], count: int, draw: random.Random) -> list[Question]:
    by_category: dict[int | None, list[Question]] = {FACT: [], UPDATE: [], NEVER_TOLD: []}
    for question in draw.sample(questions, len(questions)):
        by_category[question.category].append(question)
    never = by_category.pop(NEVER_TOLD)
    told: list[Question] = []
    while len(told) < count * 3 // 4 and any(by_category.values()):
        told += [members.pop() for members in by_category.values() if members]
    return told + never[: max(1, len(told) // 3)]


def cell(category: int, sessions_between: int, count: int, seed: str = "test") -> Iterator[Asked]:
    """Conversations with questions of one category asked ``sessions_between`` sessions after the telling.

    A fact is told in the first of ``sessions_between`` sessions and an update in the third of two more, so that one
    was told before it; what was never told is not in any of ``sessions_between`` sessions.
    """
    sessions = sessions_between + (2 if category == UPDATE else 0)
    spec = RecallSpec(sessions=sessions, update_share=0.6 if category == UPDATE else 0.3)
    number = 0
    while count > 0:
        conversation = recall_conversation(f"{seed} {category} {sessions_between} {number}", spec)
        questions = tuple(
            one
            for one in conversation.questions
            if one.category == category and distance(conversation, one) == sessions_between
        )[:count]
        number += 1
        count -= len(questions)
        if questions:
            yield Asked(conversation, questions)
