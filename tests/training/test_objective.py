from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from mlmf.memory.gate import entropy
from mlmf.model import IGNORED, MLMFModel
from mlmf.training.batching import Batch, Collator, Counts
from mlmf.training.examples import build_examples, tokenise
from mlmf.training.feature_cache import FeatureCache
from mlmf.training.feature_memory import FeatureMemory
from mlmf.training.objective import Losses, Objective
from mlmf.types import Conversation, Query

MakeBatch = Callable[..., Batch]


@pytest.fixture
def model(make_model: Callable[..., MLMFModel]) -> MLMFModel:
    """Gates open and every session blended into every slot, so that a gradient has a way to each of them."""
    made = make_model(alpha_mode="scalar", c_e=4).train()
    with torch.no_grad():
        for fusion in made.memory.fusions:
            fusion.g.fill_(0.5)
        made.memory.find_weight.fill_(0.3)
    return made


@pytest.fixture
def make_batch(model: MLMFModel, conversations: Sequence[Conversation], tmp_path: Path) -> MakeBatch:
    """``make_batch(rows, needed)``: questions by number; the sessions in memory may be given, for all or for each."""
    data, _ = tokenise(build_examples(conversations, ["answer"]), model.tokenizer, tmp_path,
                    max_prompt_tokens=64, max_target_tokens=16)  # fmt: skip
    collator = Collator(conversations, FeatureMemory(FeatureCache(model, tmp_path)), 0, model.tokenizer.pad_token_id)

    def make(
        rows: Sequence[int], needed: Sequence[int] | None = None, needed_each: Sequence[Sequence[int]] | None = None
    ) -> Batch:
        each = needed_each or ([needed] * len(rows) if needed is not None else [data[i]["needed"] for i in rows])
        return collator(
            [{**data[i], "needed": list(one), "index": i, "epoch": 0} for i, one in zip(rows, each, strict=True)]
        )

    return make


def gradients(model: MLMFModel, run: Callable[[], Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    run().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def loss_of(
    model: MLMFModel,
    batch: Batch,
    *,
    tbptt: int = 0,
    lambda_ret: float = 0.0,
    entropy: float = 0.0,
    evidence: float = 0.0,
) -> Losses:
    return Objective(model, tbptt, entropy, evidence)(batch, lambda_ret, batch.counts)


def test_gen_is_the_models_loss_after_the_sessions(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 1, 4, 6], needed=[0, 1, 2])
    losses = loss_of(model, batch)
    state = model.init_state(4)
    for t in range(3):
        sessions, _ = batch.steps[t]
        state = model.remember(sessions, state)
    output = model(batch.input_ids, batch.attention_mask, state=state, query=model.query_keys(batch.queries))
    logits, labels = output.logits[:, :-1], batch.labels[:, 1:]
    picked = logits[labels != IGNORED].log_softmax(-1).gather(1, labels[labels != IGNORED][:, None])
    assert losses.gen == pytest.approx(-picked.mean().item(), rel=1e-4)
    assert losses.total.item() == pytest.approx(losses.gen, rel=1e-6)
    assert sum(losses.gates) == pytest.approx(1, abs=1e-4)
    assert losses.spread > 0.3


def test_a_prompt_with_shown_lines_is_the_one_that_text_mode_answers(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = replace(make_batch([1, 6], needed=[0, 1, 2]), shown_tokens=40)
    state = model.init_state(2)
    for sessions, _ in batch.steps:
        state = model.remember(sessions, state)
    model.config.recall_tokens = 40
    questions = model.tokenizer.batch_decode(batch.queries)
    answers = model.answer_all([Query(question) for question in questions], state, max_new_tokens=2)
    with mock.patch.object(model.lm, "forward", wraps=model.lm.forward) as forward:
        losses = loss_of(model, batch)
    mask = forward.call_args.kwargs["attention_mask"]
    targets = (batch.labels != IGNORED).sum(1)
    assert (mask.sum(1) - targets).tolist() == [answer.tokens_read for answer in answers]
    assert losses.gen != loss_of(model, replace(batch, shown_tokens=0)).gen


def test_retention_and_hinge_are_added_with_their_weights(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 6], needed=[0, 1, 2])
    plain, weighted = loss_of(model, batch), loss_of(model, batch, lambda_ret=0.5, entropy=0.2)
    assert weighted.gen == plain.gen and weighted.ret > 0
    expected = plain.gen + 0.5 * weighted.ret + 0.2 * weighted.hinge
    assert weighted.total.item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(model, make_batch([0], needed=[1]), lambda_ret=0.5).ret == 0  # one session: nothing to retain


def test_hinge_pushes_the_gates_apart(make_model: Callable[..., MLMFModel], make_batch: MakeBatch) -> None:
    model = make_model(beta=0.5, epsilon=0.2).train()
    batch = make_batch([0, 6], needed=[0, 1])
    losses = loss_of(model, batch, entropy=1.0)
    gamma = model(batch.input_ids, batch.attention_mask,
                  state=_remember(model, batch), query=model.query_keys(batch.queries)).gamma  # fmt: skip
    mask = batch.attention_mask[:, None].expand(gamma.shape[:3]).bool()
    assert losses.hinge == pytest.approx((entropy(gamma) - 0.2).clamp_min(0)[mask].mean().item(), rel=1e-4)
    grads = gradients(model, lambda: loss_of(model, batch, entropy=1.0).total)
    sharpness = [grad for name, grad in grads.items() if name.endswith("log_beta")]
    assert sharpness and all(torch.isfinite(grad) and grad < 0 for grad in sharpness)  # descent raises beta


def test_the_hinge_is_of_what_is_asked_and_said_and_not_of_what_is_shown(
    make_model: Callable[..., MLMFModel], make_batch: MakeBatch
) -> None:
    model = make_model(beta=0.5, epsilon=0.2).train()
    batch = replace(make_batch([1, 6], needed=[0, 1, 2]), shown_tokens=40)
    outputs, forward = [], model.forward

    def kept(*args: Any, **kwargs: Any) -> Any:
        outputs.append(forward(*args, **kwargs))
        return outputs[-1]

    with mock.patch.object(model, "forward", kept):
        losses = loss_of(model, batch, entropy=1.0)
    excess = (entropy(outputs[0].gamma) - 0.2).clamp_min(0)  # (B, L, T), rows end together
    own = batch.attention_mask.sum(1).tolist()
    assert excess.shape[-1] >= max(own) + 20  # some lines stood before them
    asked_and_said = torch.cat([row[:, -count:].flatten() for row, count in zip(excess, own, strict=True)])
    assert losses.hinge == pytest.approx(asked_and_said.mean().item(), rel=1e-4)


@pytest.mark.parametrize("off", ["working", "episodic", "semantic"])
def test_gradients_are_finite_where_a_layer_is_absent(
    make_model: Callable[..., MLMFModel], make_batch: MakeBatch, off: str
) -> None:
    model = make_model(beta=0.5, epsilon=0.2, **{off: False}).train()
    batch = make_batch([0, 6], needed=[0, 1])
    grads = gradients(model, lambda: loss_of(model, batch, lambda_ret=0.1, entropy=1.0).total)
    assert all(torch.isfinite(grad).all() for grad in grads.values())


def test_switches_remove_retention_and_the_entropy_hinge(
    make_model: Callable[..., MLMFModel], make_batch: MakeBatch
) -> None:
    batch = make_batch([0, 6], needed=[0, 1, 2])

    def run(lambda_ret: float, hinge: float, **settings: Any) -> tuple[Losses, dict[str, Tensor]]:
        model = make_model(beta=0.5, epsilon=0.2, **settings).train()
        losses = loss_of(model, batch, lambda_ret=lambda_ret, entropy=hinge)
        return losses, gradients(model, lambda: loss_of(model, batch, lambda_ret=lambda_ret, entropy=hinge).total)

    on, _ = run(0.5, 0.2)
    assert on.ret > 0 and on.hinge > 0
    off, grads = run(0.5, 0.2, retention=False, entropy=False)
    never, expected = run(0.0, 0.0)
    assert off.ret == off.hinge == 0 and off.total.item() == never.total.item()
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(grads[name], grad, msg=name)


def _remember(model: MLMFModel, batch: Batch) -> Any:
    state = model.init_state(len(batch.queries))
    for sessions, features in batch.steps:
        state = model.write(sessions, features, state)
    return state


def test_truncation_changes_the_gradient_and_its_full_length_does_not(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 6], needed=[0, 1, 2, 3])
    by_length = {
        n: gradients(model, lambda n=n: loss_of(model, batch, tbptt=n).total)["memory.episodic.queries"]
        for n in (0, 1, 2, 3, 4, 9)
    }
    assert by_length[0].abs().max() > 0
    for n in (4, 9):
        torch.testing.assert_close(by_length[n], by_length[0])
    for short, long in ((1, 2), (2, 3), (3, 4)):
        assert not torch.allclose(by_length[short], by_length[long], rtol=1e-3, atol=0), (short, long)


def test_truncation_does_not_change_the_loss(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 6], needed=[0, 1, 2, 3])
    assert loss_of(model, batch, tbptt=1).gen == loss_of(model, batch).gen


def test_gradient_checkpointing_changes_nothing(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 4, 6], needed=[0, 1, 2])

    def run() -> Tensor:
        return loss_of(model, batch, lambda_ret=0.1).total

    mlp, ran = model.encoder.layers[-1].mlp, []
    mlp.register_forward_pre_hook(lambda *_: ran.append(torch.is_grad_enabled()))
    plain = gradients(model, run)
    once = len(ran)
    model.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    checkpointed = gradients(model, run)
    assert len(ran) - once > once, "no layer ran again: nothing was checkpointed"
    assert plain.keys() == checkpointed.keys()
    for name, grad in plain.items():
        torch.testing.assert_close(checkpointed[name], grad, msg=name)


def test_four_batches_of_one_are_one_batch_of_four(
    make_model: Callable[..., MLMFModel], make_batch: MakeBatch
) -> None:
    model = make_model(alpha_mode="scalar", c_e=4, beta=0.5, epsilon=0.2).train()
    with torch.no_grad():
        for fusion in model.memory.fusions:
            fusion.g.fill_(0.5)
        model.memory.find_weight.fill_(0.3)
    # answers and an abstention, targets of different length, one to four sessions
    examples = [(0, [0]), (3, [0, 3]), (4, [1, 2]), (7, [0, 1, 2, 3])]
    objective = Objective(model, 0, 0.3, 0.7)
    whole = make_batch([row for row, _ in examples], needed_each=[needed for _, needed in examples])
    together = objective(whole, 0.5, whole.counts)
    expected = gradients(model, lambda: objective(whole, 0.5, whole.counts).total)
    parts = [make_batch([row], needed=needed) for row, needed in examples]
    per_batch = Counts(*(sum(values) / 4 for values in zip(*(part.counts for part in parts), strict=True)))
    assert len({part.n_labels for part in parts}) > 1
    losses = [objective(part, 0.5, per_batch) for part in parts]
    assert together.ret > 0 and together.evi > 0 and together.hinge > 0
    assert sum(one.total.item() for one in losses) / 4 == pytest.approx(together.total.item(), rel=1e-5)
    apart = gradients(model, lambda: sum(objective(part, 0.5, per_batch).total / 4 for part in parts))
    assert expected.keys() == apart.keys() and any(grad.abs().max() > 1e-3 for grad in expected.values())
    for name, grad in expected.items():
        torch.testing.assert_close(apart[name], grad, rtol=1e-3, atol=1e-6, msg=name)


def test_evidence_loss_is_that_of_the_turn_that_answers_and_trains_the_find_step(
    model: MLMFModel, make_batch: MakeBatch
) -> None:
    batch = make_batch([0, 1, 4, 6], needed=[0, 1])  # the last but one asks for what was never told
    losses = loss_of(model, batch, evidence=0.5)
    state, query = _remember(model, batch), model.query_keys(batch.queries)
    scores = model.memory.scorer(query, state)
    logits = torch.cat([scores.nodes, scores.nothing[:, None]], 1).log_softmax(-1)
    wanted = [(0, 0), (1, 0), None, (1, 0)]
    places = [-1 if w is None else [n.key for n in state.nodes[row]].index(w) for row, w in enumerate(wanted)]
    expected = -sum(logits[row, place] for row, place in enumerate(places)).item() / 4
    assert losses.evi == pytest.approx(expected, rel=1e-4)
    assert losses.total.item() == pytest.approx(losses.gen + 0.5 * losses.evi, rel=1e-5)
    read = model.read(query, state).recalls
    assert losses.sought == 3
    assert losses.found == sum(wanted[row] in [n.key for n in read[row].nodes] for row in (0, 1, 3))

    with torch.no_grad():
        model.memory.find_weight.fill_(0.0)  # what answers does not train what finds: all below is the evidence's
    grads = gradients(model, lambda: loss_of(model, batch, evidence=0.5).total)
    find = {name: grad for name, grad in grads.items() if "key_projection" in name or "scorer" in name}
    assert {name.removeprefix("memory.") for name in find} >= {
        "key_projection.projection", "key_projection.token.weight", "scorer.context", "scorer.doubt",
    }  # fmt: skip
    # no question here names a speaker or a month, and no two turns mention the same
    still = {f"memory.scorer.{name}" for name in ("speaker", "month", "ties")}
    assert all(torch.isfinite(grad).all() for grad in find.values())
    assert all(grad.abs().max() > 0 for name, grad in find.items() if name not in still)


def test_a_batch_without_known_evidence_has_no_evidence_loss(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = replace(make_batch([0, 1], needed=[0, 1]), evidence=[None, None])
    losses = loss_of(model, batch, evidence=0.5)
    assert (losses.evi, losses.sought, losses.found) == (0, 0, 0) and losses.total.item() == losses.gen


def test_a_step_under_autocast_is_near_one_without(model: MLMFModel, make_batch: MakeBatch) -> None:
    batch = make_batch([0, 4, 6], needed=[0, 1, 2])
    plain = loss_of(model, batch, lambda_ret=0.1, evidence=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = loss_of(model, batch, lambda_ret=0.1, evidence=0.3)
    mixed.total.backward()
    assert mixed.total.item() == pytest.approx(plain.total.item(), rel=0.02)
    grad = model.memory.key_projection.projection.grad
    assert grad is not None and torch.isfinite(grad).all() and grad.abs().max() > 0
