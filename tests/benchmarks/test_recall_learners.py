"""The learners of the recall benchmark read what they are said to read, and are marked as greedy decoding would be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.recall import VARIANTS
from benchmarks.recall_baselines import ContextLearner
from benchmarks.recall_data import Asked, training_batch, word_tokenizer
from benchmarks.recall_model import LossWeights, MemoryLearner, default_config, is_correct
from mlmf.model import IGNORED
from mlmf.types import answer_prompt

BATCH = training_batch("test", 3, 6, 12)


@pytest.fixture
def learner() -> MemoryLearner:
    torch.manual_seed(0)
    return MemoryLearner(word_tokenizer(), default_config(), LossWeights())


def test_live_states_are_those_the_package_would_remember(learner: MemoryLearner) -> None:
    learner.eval()
    with torch.no_grad():
        state = learner.remember(BATCH)[0]
        for row, asked in enumerate(BATCH):
            wanted = learner.model.init_state(1)
            for session in asked.conversation.sessions:
                wanted = learner.model.remember([session], wanted)
            got = state.select([row])
            filled = got.semantic_mask[0]
            assert got.nodes == wanted.nodes
            torch.testing.assert_close(got.values[:, filled], wanted.values)
            torch.testing.assert_close(got.working, wanted.working)
            torch.testing.assert_close(got.episodic, wanted.episodic)


def test_live_query_keys_are_the_packages(learner: MemoryLearner) -> None:
    questions = BATCH[0].questions
    rows = [learner.tokenizer(question.text)["input_ids"] for question in questions]
    with torch.no_grad():
        got, wanted = learner.query(questions), learner.model.query_keys(rows)
    assert torch.equal(got.tokens, wanted.tokens) and torch.equal(got.mask, wanted.mask)
    torch.testing.assert_close(got.keys[got.mask], wanted.keys[wanted.mask])


def test_the_loss_reaches_the_sessions_through_memory(learner: MemoryLearner) -> None:
    learner.weights = LossWeights(evidence=0, language=0, retention=0)
    learner.train()
    learner(BATCH)[0].backward()
    embedding = learner.model.lm.get_input_embeddings().weight.grad
    told = learner.tokenizer(BATCH[0].conversation.sessions[0].turns[0].text)["input_ids"]
    asked = {i for one in BATCH for q in one.questions for i in learner.tokenizer(answer_prompt(q.query))["input_ids"]}
    only_told = [i for i in told if i not in asked]
    # a tied embedding also gets gradient as output; what comes through memory is there beside it
    assert only_told and (embedding[only_told].norm(dim=-1) > 0).all()
    assert all(fusion.g.grad is not None and fusion.g.grad != 0 for fusion in learner.model.memory.fusions)


def test_marks_agree_with_greedy_decoding(learner: MemoryLearner) -> None:
    learner.eval()
    with torch.no_grad():
        ids, mask, labels = learner.prompts(BATCH[0].questions)
        guess = learner.model(ids, mask).logits.argmax(-1)
        lucky = labels.clone()
        first = (labels != IGNORED).float().argmax(-1)  # the answer's place
        lucky[0, first[0]] = guess[0, first[0] - 1]
        ids[0, first[0]] = lucky[0, first[0]]
        lucky[0, first[0] + 1] = learner.model(ids, mask).logits[0, first[0]].argmax()
        marks = is_correct(learner.model(ids, mask).logits, lucky)
        prompt = ids[:1, : first[0]]
        written = learner.model.generate(prompt, mask[:1, : first[0]], max_new_tokens=2, do_sample=False)
    assert marks[0] and written[0, -2:].tolist() == lucky[0, first[0] : first[0] + 2].tolist()


@pytest.mark.parametrize("has_context", [True, False])
def test_packed_questions_are_answered_as_if_asked_alone(has_context: bool) -> None:
    torch.manual_seed(0)
    learner = ContextLearner(word_tokenizer(), has_context).eval()
    asked = next(one for one in BATCH if len(one.questions) > 1)
    with torch.no_grad():
        losses = [learner([replace(asked, questions=(question,))])[0].item() for question in asked.questions]
        together = learner([asked])[2]["gen"]
        language = learner([asked])[2]["lm"]
    alone = sum(losses) / len(losses) - learner.language * language
    assert together == pytest.approx(alone, abs=1e-4)
    assert (language > 0) == has_context


def test_without_context_the_sessions_do_not_matter() -> None:
    torch.manual_seed(0)
    learner = ContextLearner(word_tokenizer(), has_context=False).eval()
    one, other = BATCH[0], BATCH[1]
    swapped = Asked(other.conversation, one.questions)
    with torch.no_grad():
        assert learner([one])[0].item() == learner([swapped])[0].item()


@pytest.mark.parametrize("name", [name for name in VARIANTS if not name.startswith("peer:")])
def test_every_variant_of_our_own_trains(name: str) -> None:
    torch.manual_seed(0)
    learner = VARIANTS[name]()
    loss, correct, _ = learner(BATCH)
    loss.backward()
    assert torch.isfinite(loss) and len(correct) == sum(len(asked.questions) for asked in BATCH)
