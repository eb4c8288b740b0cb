"""Contracts 1 to 3: identity, parity, and a state that is a value."""

from __future__ import annotations

import copy
from datetime import datetime
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.keys import QueryKeys
from mlmf.memory.state import MemoryState
from mlmf.model import IGNORED, MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

ARCHITECTURES: list[Architecture] = ["llama", "gpt2", "qwen2"]
FACTS = (
    "I adopted a cat called Miso",
    "My sister lives in Oslo",
    "We sold the old boat",
    "I start at Norsk on Monday",
)
Base = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def session(index: int, *texts: str) -> Session:
    turns = tuple(Turn(f"D{index}:{i}", ("Anna", "Ben")[i % 2], text) for i, text in enumerate(texts))
    return Session(index, datetime(2023, 5, index + 1), turns)


HISTORIES = [
    [session(i, fact, f"tell me more about {i}") for i, fact in enumerate(FACTS)],
    [session(0, "The exam went badly", "oh no"), session(1, "I bought a red bicycle")],
]


def build(architecture: Architecture, *, open_gates: bool = False, **settings: object) -> MLMFModel:
    config = MLMFConfig(**{"recall_nodes": 3, "lora": LoraSettings(r=4), **settings})  # type: ignore[arg-type]
    model = MLMFModel(tiny_model(architecture), tiny_tokenizer(), config).eval()
    if open_gates:
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
                elif name.endswith(".g"):
                    parameter.fill_(0.5)
            model.memory.find_weight.fill_(0.3)
    return model


@torch.no_grad()
def remembered(model: MLMFModel, histories: list[list[Session]]) -> MemoryState:
    state = model.init_state(len(histories))
    for t in range(max(map(len, histories))):
        state = model.remember([past[t] if t < len(past) else None for past in histories], state)
    return state


def prompts(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> tuple[Tensor, Tensor]:
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt", add_special_tokens=False)
    return batch["input_ids"], batch["attention_mask"]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def opened(request: pytest.FixtureRequest) -> MLMFModel:
    """A model whose gates are open and whose adapters are not zero; shared, not to be changed."""
    return build(request.param, open_gates=True)


@pytest.fixture(scope="module")
def state(opened: MLMFModel) -> MemoryState:
    return remembered(opened, HISTORIES)


# ---------------------------------------------------------------- 1. identity


@pytest.mark.parametrize("padded", [False, True], ids=["even", "left-padded"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_a_fresh_model_is_the_base_model_to_the_bit(architecture: Architecture, padded: bool) -> None:
    ids, mask = prompts(tiny_tokenizer(), ["Where is Anna?", "Who?" if padded else "Where is Otto?"])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = tiny_model(architecture)(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    model = build(architecture)
    for memory in (None, model.init_state(2), remembered(model, HISTORIES), remembered(model, HISTORIES[:1])):
        assert torch.equal(model(ids, mask, state=memory).logits, expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_open_gates_change_nothing_for_rows_whose_memory_is_empty(architecture: Architecture) -> None:
    model = build(architecture, open_gates=True, lora=LoraSettings(r=0))
    ids, mask = prompts(model.tokenizer, ["Where is Anna?", "Who?"])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = tiny_model(architecture)(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    one_empty = model.write([HISTORIES[0][0], None], [model.features(HISTORIES[0][:1])[0], None],
                            model.init_state(2))  # fmt: skip
    output = model(ids, mask, state=one_empty)
    assert torch.equal(output.logits[1], expected[1])
    assert not torch.allclose(output.logits[0], expected[0], atol=1e-3)
    assert output.gates[1].tolist() == [0, 0, 0]
    torch.testing.assert_close(output.gates[0].sum(), torch.tensor(1.0))
    assert torch.equal(model(ids, mask, state=model.init_state(2)).logits, expected)


@torch.no_grad()
def test_a_fresh_smollm2_is_the_base_model_to_the_bit(smollm2: Base) -> None:
    lm, tokenizer = smollm2
    ids, mask = prompts(tokenizer, ["Question: Where is Anna?\nAnswer:", "Hello"])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = lm(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    model = MLMFModel(copy.deepcopy(lm), tokenizer, MLMFConfig()).eval()
    assert model.fusion_layers == [8, 12, 16, 20, 24]
    for memory in (None, model.init_state(2), remembered(model, [HISTORIES[0][:2], HISTORIES[1]])):
        assert torch.equal(model(ids, mask, state=memory).logits, expected)
    # and not because the memory is never read
    torch.nn.init.constant_(model.memory.fusions[0].g, 0.5)
    assert not torch.equal(model(ids, mask, state=memory).logits, expected)


# ---------------------------------------------------------------- 2. parity


def greedy(model: MLMFModel, ids: Tensor, mask: Tensor, state: MemoryState, query: QueryKeys, count: int) -> Tensor:
    """Decoding without a cache: a whole forward pass for every token."""
    for _ in range(count):
        token = model(ids, mask, state=state, query=query).logits[:, -1].argmax(-1, keepdim=True)
        ids, mask = torch.cat([ids, token], 1), torch.cat([mask, torch.ones_like(token)], 1)
    return ids


@torch.no_grad()
def test_cached_uncached_and_teacher_forced_decoding_agree(opened: MLMFModel, state: MemoryState) -> None:
    ids, mask = prompts(opened.tokenizer, ["Question: Where does the sister live?\nAnswer:", "What was red?"])
    query = opened.query_keys([opened.tokenizer(t)["input_ids"] for t in ("sister live", "red")])
    cached = opened.generate(ids, mask, state=state, query=query, max_new_tokens=10, do_sample=False)
    count = cached.shape[1] - ids.shape[1]
    assert opened.tokenizer.eos_token_id not in cached[:, ids.shape[1] :], "choose another prompt: decoding ended"
    assert count == 10
    assert torch.equal(cached, greedy(opened, ids, mask, state, query, count))
    whole = torch.cat([mask, torch.ones(2, count, dtype=mask.dtype)], 1)
    forced = opened(cached, whole, state=state, query=query).logits[:, ids.shape[1] - 1 : -1].argmax(-1)
    assert torch.equal(forced, cached[:, ids.shape[1] :])
    without = opened.generate(ids, mask, max_new_tokens=10, do_sample=False)
    assert not torch.equal(without, cached), "the memory changes nothing here: the test shows nothing"


@torch.no_grad()
def test_a_cached_step_is_the_last_of_the_whole(opened: MLMFModel, state: MemoryState) -> None:
    ids, mask = prompts(opened.tokenizer, ["Question: Where does the sister live?\nAnswer:", "What was red?"])
    found = opened.read(opened.query_keys([opened.tokenizer(t)["input_ids"] for t in ("sister live", "red")]), state)
    whole = opened(ids, mask, found=found)
    cache = opened(ids[:, :-1], mask[:, :-1], found=found, use_cache=True).past_key_values
    step = {"input_ids": ids[:, -1:], "attention_mask": mask, "past_key_values": cache, "use_cache": True}
    with pytest.raises(UserError, match="give query or found"):
        opened(**step, state=state)
    torch.testing.assert_close(opened(**step, found=found).logits[:, -1], whole.logits[:, -1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_batch_is_its_rows_and_padding_is_nothing(opened: MLMFModel, state: MemoryState) -> None:
    texts = ["Question: Where does the sister live?\nAnswer:", "What was red?"]
    ids, mask = prompts(opened.tokenizer, texts)
    together = opened(ids, mask, state=state)
    written = opened.generate(ids, mask, state=state, max_new_tokens=8, do_sample=False)
    for row, text in enumerate(texts):
        alone = opened.tokenizer(text, return_tensors="pt")["input_ids"]
        for memory in (state.select([row]), remembered(opened, [HISTORIES[row]])):
            output = opened(alone, state=memory)
            n = alone.shape[1]
            torch.testing.assert_close(together.logits[row, -n:], output.logits[0], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(together.gates[row], output.gates[0], rtol=1e-4, atol=1e-4)
            assert together.recalls[row].turn_ids == output.recalls[0].turn_ids
            tokens = opened.generate(alone, state=memory, max_new_tokens=8, do_sample=False)
            assert torch.equal(tokens[0, n:], written[row, ids.shape[1] :])


@torch.no_grad()
def test_one_state_answers_many_questions_as_repeated_rows_do(opened: MLMFModel, state: MemoryState) -> None:
    ids, mask = prompts(opened.tokenizer, ["Who sold the boat?", "Which cat?", "Oslo?"])
    one = state.select([0])
    single, repeated = opened(ids, mask, state=one), opened(ids, mask, state=one.select([0, 0, 0]))
    torch.testing.assert_close(single.logits, repeated.logits)
    assert [r.turn_ids for r in single.recalls] == [r.turn_ids for r in repeated.recalls]


@torch.no_grad()
def test_beams_read_the_memory_of_their_own_row(opened: MLMFModel, state: MemoryState) -> None:
    ids, mask = prompts(opened.tokenizer, ["Question: Where does the sister live?", "What was red?"])
    beams = opened.generate(ids, mask, state=state, max_new_tokens=6, num_beams=3, do_sample=False)
    for row in range(2):
        keep = mask[row].bool()
        alone = opened.generate(
            ids[row : row + 1, keep], state=state.select([row]), max_new_tokens=6, num_beams=3, do_sample=False
        )
        assert torch.equal(beams[row, ids.shape[1] :], alone[0, int(keep.sum()) :])


@torch.no_grad()
def test_labelled_logits_are_the_full_ones_and_so_is_the_loss(opened: MLMFModel, state: MemoryState) -> None:
    ids, mask = prompts(opened.tokenizer, ["Where does the sister live? Oslo", "What was red? bicycle"])
    labels = torch.full_like(ids, IGNORED)
    labels[0, -4:], labels[1, -7:] = ids[0, -4:], ids[1, -7:]
    full = opened(ids, mask, state=state, labels=labels)
    short = opened(ids, mask, state=state, labels=labels, labelled_only=True)
    torch.testing.assert_close(short.logits, full.logits[:, -8:-1])
    torch.testing.assert_close(short.loss, full.loss)
    taken = torch.cat([full.logits[0, -5:-1], full.logits[1, -8:-1]]).log_softmax(-1)
    targets = torch.cat([ids[0, -4:], ids[1, -7:]])
    torch.testing.assert_close(full.loss, -taken.gather(1, targets[:, None]).mean())
    # what is looked for is the prompt: the answer must not help to find itself
    asked = opened.query_keys([ids[0, mask[0].bool()][:-4].tolist(), ids[1, mask[1].bool()][:-7].tolist()])
    torch.testing.assert_close(opened(ids, mask, state=state, query=asked).logits, full.logits)


# ---------------------------------------------------------------- 3. the state is a value


def snapshot(state: MemoryState) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state._tensors().items()}


@torch.no_grad()
def test_remember_and_reading_leave_the_old_state_as_it_was(opened: MLMFModel, state: MemoryState) -> None:
    before, nodes, sessions = snapshot(state), state.nodes, state.sessions
    after = opened.remember([session(7, *FACTS), session(8, "I adopted a cat called Miso")], state)
    opened.answer("Where?", state.select([0]))
    assert after.sessions == (5, 3) and after is not state
    assert state.nodes == nodes and state.sessions == sessions
    for name, tensor in before.items():
        assert torch.equal(tensor, getattr(state, name)), name


@torch.no_grad()
def test_two_conversations_of_a_batch_never_touch(opened: MLMFModel, state: MemoryState) -> None:
    other = [session(i, f"something else {i}", "entirely") for i in range(3)]
    changed = remembered(opened, [HISTORIES[0], other])
    alone = remembered(opened, HISTORIES[:1])
    for memory in (state, changed):
        row = memory.select([0])
        assert row.nodes == alone.nodes and row.sessions == alone.sessions == (4,)
        for name, tensor in alone._tensors().items():
            cut = getattr(row, name)
            slices = tuple(slice(0, n) for n in tensor.shape)
            torch.testing.assert_close(cut[slices], tensor, rtol=1e-4, atol=1e-4, msg=name)


def test_a_conversation_stays_on_no_module(opened: MLMFModel, state: MemoryState) -> None:
    """After a call with memory, gradients on or off, the wrapped model by itself knows nothing of it."""
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        expected = opened.lm(ids).logits
        opened.generate(ids, state=state.select([0]), max_new_tokens=2)
        assert torch.equal(opened.lm(ids).logits, expected)
    opened(ids, state=state.select([0]))
    assert torch.equal(opened.lm(ids).logits, expected)


def test_a_call_that_fails_leaves_nothing_behind(opened: MLMFModel, state: MemoryState) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        expected = opened.lm(ids).logits
        query = opened.query_keys([[5, 6]])
        with pytest.raises(IndexError):
            opened(torch.tensor([[10**6]]), state=state.select([0]), query=query)
        assert torch.equal(opened.lm(ids).logits, expected)


def test_remembering_holds_on_to_no_earlier_session(opened: MLMFModel) -> None:
    """Outside of ``no_grad`` too: a chat of a year must not carry the graph of every session it had (training uses
    ``write``)."""
    state = opened.init_state()
    for past in HISTORIES[0][:2]:
        state = opened.remember([past], state)
    assert not [name for name, tensor in state._tensors().items() if tensor.requires_grad]


@torch.no_grad()
def test_a_forgotten_session_is_recalled_no_more(opened: MLMFModel, state: MemoryState) -> None:
    one = state.select([0])
    left = opened.forget(one, session=1)
    assert "D1:0" in opened.answer("Where does the sister live?", one).recalled
    answer = opened.answer("Where does the sister live?", left)
    assert answer.recalled and not any(turn.startswith("D1:") for turn in answer.recalled)
    assert one.sessions == (4,) and left.sessions == (3,)
    with pytest.raises(UserError, match="belongs to"):
        build("llama", key_layer=1).forget(left, session=0)


def test_description_says_what_is_held_and_how_far_the_gates_are_open(opened: MLMFModel, state: MemoryState) -> None:
    text = opened.describe(state, 1)
    assert text.startswith("2 sessions remembered") and "/ 1024 nodes: 3 turns" in text
    assert text.splitlines()[-1] == f"fusion gates at layers {opened.fusion_layers}: " + ", ".join(
        ["+0.46"] * len(opened.fusion_layers)
    )


@torch.no_grad()
def test_a_saved_state_answers_as_before(opened: MLMFModel, state: MemoryState, tmp_path: Path) -> None:
    state.save(tmp_path / "memory.safetensors")
    loaded = MemoryState.load(tmp_path / "memory.safetensors")
    ids, mask = prompts(opened.tokenizer, ["Where does the sister live?", "What was red?"])
    assert torch.equal(opened(ids, mask, state=loaded).logits, opened(ids, mask, state=state).logits)


@pytest.mark.parametrize("part", ["codec", "key_projection"])
def test_a_state_of_another_calibration_is_refused(part: str) -> None:
    model, other = build("llama", code_dim=16), build("llama", code_dim=16)
    state = remembered(model, HISTORIES[1:])
    other.answer("What was red?", state)
    sample = torch.randn(50, len(other.fusion_layers), 64, generator=torch.Generator().manual_seed(2))
    if part == "codec":
        other.memory.codec.calibrate(sample, [[states] for states in sample.unbind(1)])
    else:
        other.memory.key_projection.calibrate(sample[:, 0])
    with pytest.raises(UserError, match="belongs to"):
        other.answer("What was red?", state)


def test_bad_states_and_layers_are_refused() -> None:
    model = build("llama")
    foreign = build("llama", key_layer=1)
    with pytest.raises(UserError, match="belongs to"):
        model.remember([HISTORIES[0][0]], foreign.init_state())
    with pytest.raises(UserError, match="2 sessions for a state of 1"):
        model.remember(HISTORIES[0][:2], model.init_state())
    held = remembered(model, HISTORIES)
    with pytest.raises(
        UserError, match=r"session 0 is in the memory of conversation 1 already.* index of its own, such as"
    ):
        model.remember([None, HISTORIES[1][0]], held)
    ids = torch.tensor([[5, 6]] * 3)
    with pytest.raises(UserError, match="3 queries for a state of 2"):
        model(ids, state=remembered(model, HISTORIES))
    with pytest.raises(UserError, match="layer 4 does not exist"):
        build("llama", fusion_layers=[4])
