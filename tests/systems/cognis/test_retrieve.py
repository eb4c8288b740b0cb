"""Each stage of a search does what it says, alone and switched off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime

import pytest

from mlmf.config.cognis import CognisSettings
from mlmf.errors import UserError
from mlmf.retrieval.dates import Span
from mlmf.systems.cognis.analysis import analyse
from mlmf.systems.cognis.boost import boosted, nearness
from mlmf.systems.cognis.memory import CognisMemory
from mlmf.systems.cognis.records import Memory
from mlmf.types import Query
from tests.systems.cognis.conftest import ask, said

NewMemory = Callable[..., CognisMemory]


def test_a_question_is_taken_apart() -> None:
    query = Query("What did Ann paint the week before 9 June?", datetime(2023, 7, 1))
    analysis = analyse(query, None, ["Ann", "Ben"])
    assert analysis.spans == (Span(date(2023, 6, 2), date(2023, 6, 8)),)
    assert analysis.entities == ("ann",) and "paint" in analysis.words and "the" not in analysis.words
    assert (analysis.wants_latest, analysis.wants_past) == (False, False)
    assert analyse(Query("Where do I live now?"), None, []).wants_latest
    assert analyse(Query("Where did I live before?"), None, []).wants_past
    # without a date of its own, a question is asked when the conversation ends
    assert analyse(Query("And yesterday?"), datetime(2023, 5, 2), []).spans == (
        Span(date(2023, 5, 1), date(2023, 5, 1)),
    )


def test_meaning_and_words_find_what_they_find_and_weights_decide(new_memory: NewMemory) -> None:
    found = {}
    for weight in (0.0, 1.0):
        memory = new_memory(vector_weight=weight)
        # cosine prefers the short text, BM25 the one that has the rare word as well
        memory.add(
            "anna", said(0, "Cat?", "One cat with a violin and many other things besides, each of its own kind")
        )
        found[weight] = [text[:3] for text in ask(memory, "anna", "cat violin")[0]]
    assert found == {0.0: ["One", "Cat"], 1.0: ["Cat", "One"]}
    for stage in ("use_words", "use_vectors"):
        other = new_memory(**{stage: False})
        other.add("anna", said(0, "A cat sat there.", "We like rain in May."))
        assert ask(other, "anna", "cat sat there")[0][0] == "A cat sat there."


def test_a_turn_is_shown_once_as_its_fact_or_whole(memory: CognisMemory) -> None:
    memory.add("anna", said(0, "Hi! We adopted a grey cat called Tom. How are you?"))
    (found,) = memory.search("anna", [Query("grey cat called Tom")], 5)
    assert [(one.memory.kind, one.memory.text) for one in found] == [("fact", "We adopted a grey cat called Tom.")]


def test_of_a_fact_only_the_current_version_is_found_unless_the_past_is_asked_about(new_memory: NewMemory) -> None:
    memory, plain = new_memory(use_messages=False), new_memory(use_messages=False, use_versions=False)
    for one in (memory, plain):
        one.add("anna", said(0, "I live in Lisbon."))
        one.add("anna", said(1, "I moved to Porto."))
    assert ask(memory, "anna", "Do I live in Lisbon?")[0] == ["I moved to Porto."]
    assert ask(memory, "anna", "Did I live in Lisbon before?")[0] == ["I live in Lisbon.", "I moved to Porto."]
    assert ask(plain, "anna", "Do I live in Lisbon?")[0] == ["I live in Lisbon.", "I moved to Porto."]


def test_what_was_withdrawn_is_no_answer_to_a_question_about_the_past(new_memory: NewMemory) -> None:
    memory = new_memory(use_messages=False)
    memory.add("anna", said(0, "We adopted a grey cat.", "The dog likes long walks."))
    memory.add("anna", said(1, "Please forget what I said about the grey cat."))
    assert ask(memory, "anna", "Which grey cat was it before?")[0] == ["The dog likes long walks."]


def test_a_question_that_was_said_is_no_answer_to_itself(memory: CognisMemory) -> None:
    memory.add("anna", said(0, "Where is the  grey cat?", "The grey cat is here, I think"))
    assert ask(memory, "anna", "where is the grey cat?")[0] == ["The grey cat is here, I think"]


def test_messages_can_be_left_out_once_their_facts_are_taken(new_memory: NewMemory) -> None:
    memory = new_memory(use_messages=False)
    memory.record("anna", said(0, "Is that the grey cat?"))
    assert ask(memory, "anna", "grey cat")[0] == ["Is that the grey cat?"]
    memory.extract("anna")
    assert ask(memory, "anna", "grey cat")[0] == []


def test_the_time_that_is_asked_about_comes_first(new_memory: NewMemory) -> None:
    sessions = [said(i, f"We saw a grey cat number {i}.", day=1 + 7 * i) for i in range(4)]
    for settings, first in (({}, 2), ({"use_temporal": False}, 0), ({"use_analysis": False}, 0)):
        memory = new_memory(use_vectors=False, **settings)  # by words alone, all are equal
        for session in sessions:
            memory.add("anna", session)
        (found,) = ask(memory, "anna", "What grey cat was it on 15 May 2023?")
        assert found[0] == f"We saw a grey cat number {first}."


def test_what_is_asked_about_now_is_new(new_memory: NewMemory) -> None:
    memory = new_memory(use_vectors=False, recency_weight=0.5)
    for i in range(4):
        memory.add("anna", said(i, f"We saw a grey cat number {i}.", month=2 + i))
    assert ask(memory, "anna", "Which is the latest grey cat number?")[0][0] == "We saw a grey cat number 3."
    assert ask(memory, "anna", "Which is the grey cat number?")[0][0] == "We saw a grey cat number 0."


def remembered(day: int | None, text: str = "x", *spans: Span) -> Memory:
    said = None if day is None else datetime(2023, 5, day, 12)
    return Memory(text, "fact", "Anna", text, said, 0, 0, (), text, entities=(text,), spans=spans)


def test_boosts_are_those_of_the_formulas() -> None:
    asked = analyse(Query("What about 10 May 2023?"), None, [])
    near = [
        remembered(3),
        remembered(10),
        remembered(None),
        remembered(1, "y", Span(date(2023, 5, 9), date(2023, 5, 20))),
    ]
    assert [nearness(one, asked.spans) for one in near] == pytest.approx([math.exp(-1), 1, 0, 1])
    settings = CognisSettings(temporal_weight=0.25, recency_weight=0.5, recency_days=10, entity_weight=0.0)
    scored = {id(memory): score for memory, score in boosted([(one, 0.8) for one in near], asked, None, settings)}
    assert [scored[id(one)] for one in near] == pytest.approx([0.6 + 0.25 * math.exp(-1), 0.85, 0.6, 0.85])
    now, latest = analyse(Query("What is it now?"), None, []), datetime(2023, 5, 11, 12)
    ((_, score),) = boosted([(remembered(1), 0.8)], now, latest, settings)
    assert score == pytest.approx(0.8 + 0.5 * math.exp(-1))
    named = analyse(Query("Did Anna see the cat?"), None, ["Anna"])
    assert set(named.entities) == {"anna", "cat"}
    weighted = CognisSettings(entity_weight=0.3)
    ((_, both),) = boosted([(remembered(1, "cat"), 0.5)], named, None, weighted)
    ((_, half),) = boosted([(remembered(1, "dog"), 0.5)], named, None, weighted)
    assert (both, half) == pytest.approx((0.8, 0.65))


class LongestFirst:
    """Prefers long texts, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, list[str]]] = []

    def order(self, query: str, texts: Sequence[str]) -> list[int]:
        self.shown.append((query, list(texts)))
        return sorted(range(len(texts)), key=lambda position: -len(texts[position]))


def test_a_reranker_orders_the_best_and_leaves_the_rest(new_memory: NewMemory) -> None:
    reranker = LongestFirst()
    memory = new_memory(reranker=reranker, rerank_count=2)
    memory.add("anna", said(0, "grey cat sat", "grey cat sat on the wall", "one grey thing more than all the others"))
    (found,) = ask(memory, "anna", "grey cat sat")
    assert found == ["grey cat sat on the wall", "grey cat sat", "one grey thing more than all the others"]
    assert reranker.shown == [("grey cat sat", ["Anna: grey cat sat", "Anna: grey cat sat on the wall"])]
    assert ask(memory, "anna", "grey cat sat", count=1) == [["grey cat sat on the wall"]]


def test_every_stage_is_timed(new_memory: NewMemory) -> None:
    memory = new_memory(reranker=LongestFirst())
    memory.add("anna", said(0, "We adopted a grey cat."))
    ask(memory, "anna", "grey cat", "What now?")
    table = memory.times.table()
    assert {"encode", "analysis", "vectors", "words", "fusion", "boosts", "versions", "rerank", "total"} <= set(table)
    assert len(memory.times.seconds["total"]) == 2
    assert all(0 < row["p50"] <= row["p95"] <= row["p99"] for row in table.values())
    assert table["total"]["p50"] > table["fusion"]["p50"]


def test_empty_memories_and_no_questions_find_nothing(memory: CognisMemory) -> None:
    assert ask(memory, "anna", "grey cat") == [[]]
    assert memory.search("anna", [], 5) == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"vector_weight": 1.5}, r"cognis\.vector_weight must be in \[0, 1\], got 1\.5"),
        ({"shortlist": 0}, r"cognis\.shortlist must be at least 1, got 0"),
        ({"recency_days": 0.0}, r"cognis\.recency_days must be more than 0"),
        ({"entity_weight": -1.0}, r"cognis\.entity_weight must be at least 0"),
        ({"shortlist_width": 0}, r"cognis\.shortlist_width must be at least 1"),
        ({"use_vectors": False, "use_words": False}, "so nothing can be found"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        CognisSettings(**values)  # type: ignore[arg-type]
