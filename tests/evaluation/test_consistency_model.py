"""A cross-encoder as judge. The weights here are random: which output counts, and what is refused, is what can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from mlmf.errors import UserError
from mlmf.evaluation.consistency import Claim, ConsistencyJudge
from mlmf.evaluation.consistency_model import CrossEncoderJudge
from mlmf.evaluation.run import run_evaluation
from mlmf.tiny import VOCAB_SIZE
from tests.evaluation.conftest import SpySystem, config
from tests.retrieval.tiny_encoder import save_tiny_encoder

pytest.importorskip("sentence_transformers")

NLI = {0: "contradiction", 1: "entailment", 2: "neutral"}


def save(folder: Path, labels: dict[int, str], biases: list[float]) -> Path:
    """A two-layer BERT whose verdict is its biases, whatever it reads."""
    save_tiny_encoder(folder)  # for the tokenizer
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=VOCAB_SIZE, id2label=labels, label2id={v: k for k, v in labels.items()}, **shape)
    )
    torch.nn.init.zeros_(model.classifier.weight)
    model.classifier.bias.data = torch.tensor(biases)
    model.save_pretrained(folder)
    return folder


def verdicts(judge: ConsistencyJudge) -> list[bool | None]:
    assert judge.judge([]) == []
    claims = [Claim("Which pet?", "a cat", "cat"), Claim("Where?", "in Oslo", "in the far north of the country")]
    return [one.is_consistent for one in judge.judge(claims)]


@pytest.mark.parametrize(("biases", "expected"), [([0.0, 2.0, 0.0], True), ([2.0, 0.0, 0.0], False)])
def test_the_output_called_entailment_decides(tmp_path: Path, biases: list[float], expected: bool) -> None:
    judge: ConsistencyJudge = CrossEncoderJudge(str(save(tmp_path / "nli", NLI, biases)), device="cpu")
    assert judge.name == "cross-encoder nli"
    assert verdicts(judge) == [expected] * 2
    reordered = {0: "entailment", 1: "neutral", 2: "contradiction"}
    other = CrossEncoderJudge(str(save(tmp_path / "other", reordered, biases)), device="cpu")
    assert verdicts(other) == [not expected] * 2


def test_the_threshold_is_of_the_probability(tmp_path: Path) -> None:
    folder = str(save(tmp_path / "nli", NLI, [0.0, 1.0, 0.0]))  # entailment 0.576
    found = [verdicts(CrossEncoderJudge(folder, threshold=t, device="cpu"))[0] for t in (0.57, 0.58)]
    assert found == [True, False]


def test_a_model_with_one_score_needs_no_label(tmp_path: Path) -> None:
    folder = str(save(tmp_path / "sts", {0: "LABEL_0"}, [2.0]))  # sigmoid 0.881
    found = [verdicts(CrossEncoderJudge(folder, threshold=t, device="cpu"))[0] for t in (0.88, 0.89)]
    assert found == [True, False]


def test_a_model_that_judges_something_else_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "mood", {0: "sad", 1: "glad"}, [0.0, 0.0])
    with pytest.raises(UserError, match="its outputs are sad, glad, and none is entailment"):
        CrossEncoderJudge(str(folder), device="cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no cross-encoder can be loaded from"):
        CrossEncoderJudge(str(folder), device="cpu")


def test_a_run_is_judged_by_it_and_says_so(data_file: Path, tmp_path: Path, spy: SpySystem) -> None:
    judge = save(tmp_path / "nli", NLI, [0.0, 2.0, 0.0])
    settings = {"system": "no_memory", "consistency_model": str(judge), "device": "cpu"}
    entry = run_evaluation(config(data_file, tmp_path, **settings)).results[0]
    assert entry["scoring"]["judge"] == "cross-encoder nli"
    # this judge accepts everything that is no refusal
    assert entry["keys"]["raw"]["scores"]["answerable"]["consistency"] == {"mean": 1.0, "n": 6}


def test_a_judge_that_cannot_be_loaded_is_heard_of_before_anything_is_asked(
    data_file: Path, tmp_path: Path, spy: SpySystem
) -> None:
    (tmp_path / "empty").mkdir()
    settings = {"system": "no_memory", "consistency_model": str(tmp_path / "empty"), "device": "cpu"}
    with pytest.raises(UserError, match="consistency_model"):
        run_evaluation(config(data_file, tmp_path, **settings))
    assert spy.calls == []
