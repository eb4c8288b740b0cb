"""Four questions in LongMemEval's layout, invented for these tests, one of them an abstention question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def turn(role: str, content: str, *, has_answer: bool = False) -> dict[str, Any]:
    return {"role": role, "content": content, **({"has_answer": True} if has_answer else {})}


FILLER = [turn("user", "How do I boil rice?"), turn("assistant", "Rinse it, then simmer it for twelve minutes.")]
BIKE = [
    turn("user", "I bought a green bike today.", has_answer=True),
    turn("assistant", "Enjoy the ride!"),
]
SOLD = [turn("user", "The green bike is sold, I ride a red one now.", has_answer=True), turn("assistant", "Nice.")]


def items() -> list[dict[str, Any]]:
    """As the file holds them; the second one's sessions are not in the order of time, as in the oracle file."""
    return [
        {
            "question_id": "q-user",
            "question_type": "single-session-user",
            "question": "What colour was the bike I bought?",
            "answer": "green",
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_session_ids": ["filler_1", "answer_1", "filler_1"],
            "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00", "2023/05/22 (Mon) 09:00"],
            "haystack_sessions": [FILLER, BIKE, FILLER],
            "answer_session_ids": ["answer_1"],
        },
        {
            "question_id": "q-update",
            "question_type": "knowledge-update",
            "question": "Which bike do I ride?",
            "answer": "the red one",
            "question_date": "2023/06/30 (Fri) 12:00",
            "haystack_session_ids": ["answer_2", "answer_1"],
            "haystack_dates": ["2023/06/21 (Wed) 10:00", "2023/05/21 (Sun) 10:00"],
            "haystack_sessions": [SOLD, BIKE],
            "answer_session_ids": ["answer_1", "answer_2"],
        },
        {
            "question_id": "q-count",
            "question_type": "multi-session",
            "question": "How many bikes have I had?",
            "answer": 2,
            "question_date": "2023/06/21 (Wed) 09:00",
            "haystack_session_ids": ["answer_1", "answer_2"],
            "haystack_dates": ["2023/05/21 (Sun) 10:00", "2023/06/21 (Wed) 10:00"],
            "haystack_sessions": [BIKE, SOLD],
            "answer_session_ids": ["answer_1", "answer_2", "answer_3"],
        },
        {
            "question_id": "q-user_abs",
            "question_type": "single-session-user",
            "question": "What colour was the car I bought?",
            "answer": "You did not mention a car.",
            "question_date": "2023/05/30 (Tue) 23:40",
            "haystack_session_ids": ["answer_1"],
            "haystack_dates": ["2023/05/21 (Sun) 10:00"],
            "haystack_sessions": [BIKE],
            "answer_session_ids": ["answer_1"],
        },
    ]


def save(path: Path, content: object = None) -> Path:
    path.write_text(json.dumps(items() if content is None else content))
    return path
