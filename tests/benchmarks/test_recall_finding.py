"""The two additions to finding do what they say, and without them the model is the package's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.recall_data import training_batch, word_tokenizer
from benchmarks.recall_finding import outdated
from benchmarks.recall_model import LossWeights, MemoryLearner, default_config
from mlmf.memory.state import MemoryState, Node
from mlmf.model import MLMFModel

BATCH = training_batch("test", 3, 6, 12)


@pytest.fixture
def learner() -> MemoryLearner:
    torch.manual_seed(0)
    return MemoryLearner(word_tokenizer(), default_config(), LossWeights())


def nodes(*turn_ids: str) -> tuple[Node, ...]:
    return tuple(Node(i, 0, turn_id, "") for i, turn_id in enumerate(turn_ids))


def test_a_node_is_outdated_by_newer_ones_that_answer_as_well(learner: MemoryLearner) -> None:
    state = replace(learner.model.init_state(2), nodes=(nodes("a", "b", "c", "d"), nodes("e", "f", "nothing")))
    scores = torch.tensor([[5.0, 1.0, 4.0, -torch.inf], [2.0, 1.0, 9.0, -torch.inf]])
    got = outdated(scores, state)
    e = torch.exp
    wanted = [[e(torch.tensor(-1.0)), e(torch.tensor(-1.0)), 0, 0], [e(torch.tensor(-8.0)), 0, 0, 0]]
    torch.testing.assert_close(got, torch.tensor(wanted))


def test_age_alone_outdates_nothing(learner: MemoryLearner) -> None:
    state = replace(learner.model.init_state(1), nodes=(nodes(*"abcdefgh"),))
    scores = torch.tensor([[20.0, *[0.0] * 7]])
    assert outdated(scores, state)[0, 0] < 1e-8


def test_nothing_is_one_more_node_with_a_score_of_its_own(learner: MemoryLearner) -> None:
    with torch.no_grad():
        state: MemoryState = learner.remember(BATCH)[0]
        grown = learner.model.or_nothing(state)
        query = learner.query([asked.questions[0] for asked in BATCH])
        after = learner.model.memory.scorer(query, grown)
    assert grown.values.shape[1] == state.values.shape[1] + 1
    for row, before in enumerate(state.nodes):
        assert grown.nodes[row][:-1] == before and grown.nodes[row][-1].turn_id == "nothing"
        assert after[row, len(before)] == learner.model.doubt
        owned = grown.values[row][grown.owner[row] == len(before)]
        torch.testing.assert_close(owned[-1], learner.model.nothing.detach())


def test_what_was_never_told_is_supervised_towards_nothing(learner: MemoryLearner) -> None:
    questions = [next(q for q in asked.questions if q.is_trap) for asked in BATCH]
    with torch.no_grad():
        state, query = learner.remember(BATCH)[0], learner.query(questions)
        learner.model.doubt.fill_(1e3)
        sure, found = learner.evidence_loss(query, learner.model.or_nothing(state), questions)
        learner.model.doubt.fill_(-1e3)
        unsure, _ = learner.evidence_loss(query, learner.model.or_nothing(state), questions)
    assert sure < 1e-3 and found == 1.0 and unsure > 100


def test_without_additions_reading_is_the_packages() -> None:
    torch.manual_seed(0)
    learner = MemoryLearner(word_tokenizer(), default_config(), LossWeights(), has_versions=False, has_nothing=False)
    with torch.no_grad():
        state = learner.remember(BATCH)[0]
        query = learner.query([asked.questions[0] for asked in BATCH])
        assert learner.model.or_nothing(state) is state
        bank, recalls = learner.model.read(query, state)
        wanted_bank, wanted = MLMFModel.read(learner.model, query, state)
    assert recalls == wanted and bank is not None and wanted_bank is not None
    assert torch.equal(bank.states, wanted_bank.states) and torch.equal(bank.bias, wanted_bank.bias)
