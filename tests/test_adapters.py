"""Adapters merged for answering: faster, never seen by sessions, training, copies or checkpoints."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.host import decoder_layers
from mlmf.memory.state import MemoryState
from mlmf.model import MLMFModel
from mlmf.tiny import Architecture, tiny_model, tiny_tokenizer
from mlmf.types import Session, Turn

ARCHITECTURES: list[Architecture] = ["llama", "gpt2", "gpt_neox", "qwen3"]
SESSION = Session(0, datetime(2023, 5, 8), (Turn("a", "Anna", "I adopted a cat"), Turn("b", "Ben", "Lovely!")))
IDS = torch.tensor([[5, 60, 7, 80, 33], [9, 10, 11, 12, 90]])


def build(
    architecture: Architecture = "llama", dtype: torch.dtype = torch.float32, **settings: object
) -> tuple[MLMFModel, MemoryState]:
    """A model whose adapters are not zero and whose gates are open, and a memory of it."""
    config = MLMFConfig(lora=LoraSettings(r=4, **settings))  # type: ignore[arg-type]
    model = MLMFModel(tiny_model(architecture, dtype=dtype), tiny_tokenizer(), config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
            elif name.endswith(".g"):
                parameter.fill_(0.5)
    return model, model.remember([SESSION], model.init_state())


def beside(model: MLMFModel, state: MemoryState) -> Tensor:
    """Logits with the adapters beside the weights, whatever the model does by itself."""
    merging, model.adapters.merging = model.adapters.merging, False
    try:
        with torch.no_grad():
            return model(IDS, state=state).logits
    finally:
        model.adapters.merging = merging


@torch.no_grad()
def logits(model: MLMFModel, state: MemoryState) -> Tensor:
    return model(IDS, state=state).logits


def adapted(model: MLMFModel) -> list[LoraLayer]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_merged_is_unmerged_and_sessions_are_the_bases(
    architecture: Architecture, dtype: torch.dtype, tolerance: float
) -> None:
    model, state = build(architecture, dtype)
    base = model.encoder.encode([SESSION])[0].states
    expected = beside(model, state)
    assert model.adapters.held_bytes == 0
    merged = logits(model, state)
    assert model.adapters.held_bytes > 0
    assert (merged - expected).norm() < tolerance * expected.norm()
    assert not torch.equal(merged, expected), "nothing was merged"
    with model.adapters.merged():
        during = model.encoder.encode([SESSION])[0].states
    assert torch.equal(during, base)
    model.unmerge_adapters()
    assert torch.equal(model.encoder.encode([SESSION])[0].states, base)
    assert torch.equal(logits(model, state), expected) and model.adapters.held_bytes == 0
    model.merge_adapters()
    assert torch.equal(logits(model, state), merged)


def test_answers_and_generation_merge_and_training_does_not() -> None:
    model, state = build()
    model(IDS, state=state, labels=IDS).loss.backward()
    assert model.adapters.held_bytes == 0, "merged although gradients are wanted"
    model.generate(IDS, state=state, max_new_tokens=2)
    held = model.adapters.held_bytes
    assert held == sum(layer.get_base_layer().weight.nbytes for layer in adapted(model))
    model.train()
    assert model.adapters.held_bytes == 0
    with torch.no_grad():
        model(IDS, state=state)
    assert model.adapters.held_bytes == 0
    model.eval().answer("Which cat?", state, max_new_tokens=2)
    assert model.adapters.held_bytes == held


def test_switched_off_in_the_config_nothing_is_merged() -> None:
    model, state = build(merge=False)
    expected = logits(model, state)
    assert model.adapters.held_bytes == 0
    model.merge_adapters()
    torch.testing.assert_close(logits(model, state), expected, rtol=1e-4, atol=1e-4)
    assert model.adapters.held_bytes > 0


def test_the_adapted_layers_are_in_place_between_calls() -> None:
    model, state = build()
    names, before = list(model.state_dict()), adapted(model)
    logits(model, state)
    with pytest.raises(IndexError), torch.no_grad():
        model(torch.tensor([[10**6]]))
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(adapted(model), before, strict=True))
    assert all(not layer.merged and not layer.disable_adapters for layer in before)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert sum("lora_" in name for name in trained) == 2 * len(before)


def test_a_changed_weight_is_noticed() -> None:
    model, state = build()
    stale = logits(model, state)
    weights = [p for name, p in model.named_parameters() if "lora_" in name]
    optimiser = torch.optim.SGD(weights, lr=1.0)
    model(IDS, state=state, labels=IDS).loss.backward()
    optimiser.step()
    stepped = logits(model, state)
    assert not torch.allclose(stepped, stale, atol=1e-3)
    torch.testing.assert_close(stepped, beside(model, state), rtol=1e-4, atol=1e-4)

    other, _ = build()
    loaded = {name: tensor + 0.05 for name, tensor in other.state_dict().items() if "lora_" in name}
    for assign in (False, True):
        model.load_state_dict({name: tensor.clone() for name, tensor in loaded.items()}, strict=False, assign=assign)
        torch.testing.assert_close(logits(model, state), beside(model, state), rtol=1e-4, atol=1e-4)
        loaded = {name: tensor - 0.1 for name, tensor in loaded.items()}
    model.double()
    assert logits(model, state).dtype == torch.float64


def test_a_checkpoint_is_the_same_merged_or_not(tmp_path: Path) -> None:
    model, state = build()
    model.save_pretrained(tmp_path / "before")
    logits(model, state)
    model.save_pretrained(tmp_path / "merged")
    files = [path for path in (tmp_path / "before").rglob("*") if path.is_file()]
    assert len(files) > 4
    for path in files:
        assert path.read_bytes() == (tmp_path / "merged" / path.relative_to(tmp_path / "before")).read_bytes(), path


def test_a_deep_copy_merges_its_own_weights() -> None:
    model, state = build()
    expected = logits(model, state)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for layer in adapted(model):
            layer.lora_B["default"].weight.zero_()  # type: ignore[operator]
    assert torch.equal(logits(other, state), expected)
    assert not torch.allclose(logits(model, state), expected, atol=1e-3)


def test_threads_that_read_and_answer_at_once_get_what_each_gets_alone() -> None:
    model, state = build()
    expected, base = logits(model, state), model.encoder.encode([SESSION])[0].states
    start = threading.Barrier(3)

    def answer() -> bool:
        start.wait(timeout=30)
        return all(torch.equal(logits(model, state), expected) for _ in range(5))

    def read() -> bool:
        start.wait(timeout=30)
        return all(torch.equal(model.encoder.encode([SESSION])[0].states, base) for _ in range(5))

    with ThreadPoolExecutor(3) as pool:
        assert all(future.result(timeout=60) for future in [pool.submit(job) for job in (answer, read, answer)])


def test_without_adapters_there_is_nothing_to_merge() -> None:
    config = MLMFConfig(lora=LoraSettings(r=0))
    model = MLMFModel(tiny_model("llama"), tiny_tokenizer(), config).eval()
    model.merge_adapters()
    assert torch.equal(logits(model, model.init_state()), tiny_model("llama")(IDS).logits)
    model.unmerge_adapters()
    assert model.adapters.held_bytes == 0


def test_a_layer_that_is_no_plain_matrix_keeps_its_adapter_beside_it() -> None:
    model, state = build(target_modules=["embed_tokens", "q_proj"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_embedding_A" in name:  # peft starts this one, not B, from nothing
                parameter.normal_()
    torch.testing.assert_close(logits(model, state), beside(model, state), rtol=1e-4, atol=1e-4)
    queries = [layer for layer in adapted(model) if isinstance(layer.get_base_layer(), nn.Linear)]
    assert model.adapters.held_bytes == sum(layer.get_base_layer().weight.nbytes for layer in queries)
    assert len(queries) == len(adapted(model)) - 1


@pytest.mark.parametrize("how", ["merge_adapter", "merge_and_unload"])
def test_a_base_merged_through_peft_is_refused(how: str) -> None:
    model, state = build()
    lm = model.lm
    getattr(lm, how)()
    for call in (
        lambda: model.remember([SESSION], state),
        lambda: model(IDS, state=state),
        lambda: model.generate(IDS, max_new_tokens=1),
        lambda: model.answer("Which cat?", state),
    ):
        with pytest.raises(UserError, match=r"was merged or unloaded through peft.*Load the model again"):
            call()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_below_the_first_fusion_layer_learn_nothing_and_take_no_backward_pass(
    architecture: Architecture,
) -> None:
    model, state = build(architecture)
    first, blocks = min(model.fusion_layers), decoder_layers(model.lm)
    assert first > 0
    learning = [any(parameter.requires_grad for parameter in block.parameters()) for block in blocks]
    assert learning == [number >= first for number in range(len(blocks))]
    reached: dict[int, bool] = {}
    for number, block in enumerate(blocks):
        block.register_forward_hook(lambda _, __, out, n=number: reached.update({n: _hidden(out).requires_grad}))
    model.train()(IDS, state=state)
    assert reached == {number: number >= first for number in range(len(blocks))}


def test_first_layer_0_adapts_every_block() -> None:
    model, _ = build(first_layer=0)
    assert all(any(p.requires_grad for p in block.parameters()) for block in decoder_layers(model.lm))


def _hidden(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]
