from __future__ import annotations

from datetime import datetime

import pytest
import torch
from transformers import LogitsProcessorList

from mlmf import answering
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.llm.abstaining import AbstainFrom
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import tiny_model, tiny_tokenizer
from mlmf.types import Query, Session, Turn, answer_prompt

FACTS = (
    "I adopted a cat called Miso",
    "My sister lives in Oslo",
    "We sold the old boat",
    "I start at Norsk on Monday",
)
HISTORY = [
    Session(
        i, datetime(2023, 5, i + 1), (Turn(f"D{i}:0", "Anna", fact), Turn(f"D{i}:1", "Ben", f"tell me more about {i}"))
    )
    for i, fact in enumerate(FACTS)
]


def build(**settings: object) -> MLMFModel:
    """A tiny model whose gates are open."""
    config = MLMFConfig(**{"recall_nodes": 3, "lora": LoraSettings(r=4), **settings})  # type: ignore[arg-type]
    model = MLMFModel(tiny_model("llama"), tiny_tokenizer(), config).eval()
    for fusion in model.memory.fusions:
        torch.nn.init.constant_(fusion.g, 0.5)
    return model


@torch.no_grad()
def remembered(model: MLMFModel) -> MemoryState:
    state = model.init_state()
    for session in HISTORY:
        state = model.remember([session], state)
    return state


def test_answers_say_what_was_read() -> None:
    model = build()
    state = remembered(model)
    questions = [Query("Where does the sister live?"), Query("Which cat?", datetime(2023, 6, 1))]
    answers = model.answer_all(questions, state, max_new_tokens=5)
    for question, answer in zip(questions, answers, strict=True):
        assert answer.tokens_read == len(model.tokenizer(answer_prompt(question))["input_ids"])
        assert set(answer.gates) == {"working", "episodic", "semantic"}
        assert sum(answer.gates.values()) == pytest.approx(1, abs=1e-4)
        assert len(answer.recalled) == 3 and len(answer.recalled_lines) == 3
        assert all(line.startswith("[") and "2023]" in line for line in answer.recalled_lines)
        assert "\n" not in answer.text and answer.seconds > 0
    assert model.answer("Which cat?", model.init_state()).gates == {}


def test_an_answer_that_fills_the_window_is_refused() -> None:
    model = build()
    with pytest.raises(UserError, match="leaves no room for a question"):
        model.answer("Which cat?", model.init_state(), max_new_tokens=model.encoder.window)


def test_text_mode_puts_recalled_lines_before_the_question() -> None:
    model = build(recall_tokens=60)
    state = remembered(model)
    answer = model.answer("Which cat is called Miso?", state, max_new_tokens=2)
    bare = len(model.tokenizer(answer_prompt(Query("Which cat is called Miso?")))["input_ids"])
    assert bare < answer.tokens_read <= bare + 60


def test_the_abstention_is_said_exactly_from_its_probability_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    state, question, word = remembered(model), "Which cat is called Miso?", 7

    def without_blank(probability: float, _: object, prompt_tokens: int) -> LogitsProcessorList:
        return LogitsProcessorList([AbstainFrom(probability, [word], prompt_tokens)])

    monkeypatch.setattr(answering, "abstaining", without_blank)
    ids = torch.tensor([model.tokenizer(answer_prompt(Query(question)))["input_ids"]])
    query = model.query_keys([model.tokenizer(question)["input_ids"]])
    likely = model(ids, state=state, query=query).logits[0, -1].float().softmax(-1)[word].item()
    said = []
    for threshold in (0.9 * likely, 1.1 * likely, 0.0, 1.0):
        model.config.abstain_from = threshold
        said.append(model.answer(question, state, max_new_tokens=1).text == model.tokenizer.decode([word]).strip())
    assert said == [True, False, True, False]


def test_prompt_is_lines_then_the_dated_question() -> None:
    assert answer_prompt(Query("Who?")) == "Question: Who?\nAnswer:"
    dated = answer_prompt(Query("Who?", datetime(2023, 5, 8)), ["[1 May 2023] Anna: hi"])
    assert dated == "[1 May 2023] Anna: hi\nQuestion (8 May 2023): Who?\nAnswer:"


@pytest.mark.parametrize("off", ["working", "episodic", "semantic", "gating"])
def test_every_ablation_remembers_and_answers(off: str) -> None:
    model = build(**{off: False})
    answer = model.answer("Which cat?", remembered(model), max_new_tokens=3)
    if off != "gating":
        assert answer.gates[off] == 0
    assert sum(answer.gates.values()) == pytest.approx(1, abs=1e-4)
    assert (answer.recalled == ()) == (off == "semantic")


def test_only_memory_and_adapters_are_trained() -> None:
    model = build()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained and all(name.startswith("memory.") or "lora_" in name for name in trained)
    bare = build(lora=LoraSettings(r=0))
    assert all(not p.requires_grad for p in bare.lm.parameters())
