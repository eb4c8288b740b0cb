from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlmf.config.training import TrainConfig
from mlmf.errors import UserError
from mlmf.training.data import load_training_data

MakeConfig = Callable[..., TrainConfig]


def test_conversations_are_chosen_by_id(make_config: MakeConfig, data_file: Path) -> None:
    chosen = load_training_data(make_config(data_file=str(data_file), conversations=["carl"])).conversations
    assert [conversation.id for conversation in chosen] == ["carl"]
    with pytest.raises(UserError, match=r"no conversation 'dora'. It has: anna, carl"):
        load_training_data(make_config(data_file=str(data_file), conversations=["dora"]))


def test_locco_trains_on_its_training_users_only(make_config: MakeConfig) -> None:
    train = {c.id for c in load_training_data(make_config(task="locco")).conversations}
    test = {c.id for c in load_training_data(make_config(task="locco", split="test")).conversations}
    assert train and test and not train & test


def test_other_tasks_join_and_are_named_as_read(make_config: MakeConfig, data_file: Path) -> None:
    settings = {"data_file": str(data_file), "also": ["recall:train", "locco"], "also_conversations": 3}
    data = load_training_data(make_config(**settings))
    assert {task: len(ids) for task, ids in data.ids.items()} == {"jsonl": 2, "recall": 3, "locco": 3}
    assert [c.id for c in data.conversations] == [one for ids in data.ids.values() for one in ids]
    assert load_training_data(make_config(**settings)) == data
    assert load_training_data(make_config(**settings, seed=1)).ids["recall"] != data.ids["recall"]
    with pytest.raises(UserError, match=r"also: lomoco: unknown task 'lomoco'"):
        load_training_data(make_config(data_file=str(data_file), also=["lomoco"]))


def test_a_share_comes_again_with_names(make_config: MakeConfig) -> None:
    data = load_training_data(make_config(task="locco", conversations=["4", "5"], named_share=1.0))
    assert data.ids == {"locco": ["4", "5"]}
    assert [c.id for c in data.conversations[:2]] == ["4", "5"]
    assert sorted(c.id for c in data.conversations[2:]) == ["4", "5"]
    assert all("User" not in c.speakers for c in data.conversations[2:])


def test_nobody_is_swapped_where_nobody_has_a_name(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match="swapped_share asks about people with names: set named_share too"):
        make_config(swapped_share=0.2)


def test_a_share_that_swaps_nobody_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    def talk(partner: str) -> TrainConfig:
        said = [
            {"id": "t1", "speaker": "User", "text": "I like tea"},
            {"id": "t2", "speaker": partner, "text": "Fine!"},
        ]
        asked = [{"question": "What do I like?", "answer": "tea", "evidence": ["t1"]}]
        file = tmp_path / f"{partner}.jsonl"
        file.write_text(json.dumps({"id": "x", "sessions": [{"turns": said}], "questions": asked}), encoding="utf-8")
        return make_config(data_file=str(file), named_share=1.0, swapped_share=1.0)

    copy = load_training_data(talk("Chatbot")).conversations[1]
    assert [question.is_trap for question in copy.questions] == [False, True]
    with pytest.raises(UserError, match=r"swapped_share is 1\.0, .*none has questions .* assistant or bot or chatbot"):
        load_training_data(talk("Anna"))
