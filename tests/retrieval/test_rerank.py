"""A cross-encoder of this machine's own: orders pairs, refuses what does not rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from mlmf.errors import UserError
from mlmf.retrieval.rerank import CrossEncoderReranker
from mlmf.tiny import VOCAB_SIZE, tiny_tokenizer


def save_cross_encoder(folder: Path, labels: int = 1) -> str:
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(vocab_size=VOCAB_SIZE, num_labels=labels, pad_token_id=0, **shape)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "right"
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_texts_are_ordered_by_the_score_of_each_pair_and_ties_stay_as_they_were(tmp_path: Path) -> None:
    reranker = CrossEncoderReranker(save_cross_encoder(tmp_path), device="cpu", batch_size=2)
    texts = ["a cat", "the violin", "rain in May", "the violin"]
    order = reranker.order("Who plays?", texts)
    assert sorted(order) == [0, 1, 2, 3]
    assert order.index(3) == order.index(1) + 1
    # alone or in company, a pair has the same score
    for first, second in ((0, 1), (1, 2), (0, 2)):
        alone = reranker.order("Who plays?", [texts[first], texts[second]])
        assert (alone == [0, 1]) == (order.index(first) < order.index(second))
    assert reranker.order("Who plays?", []) == []


def test_a_classifier_of_several_labels_does_not_rank(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gives 3 scores a pair; one that ranks gives one"):
        CrossEncoderReranker(save_cross_encoder(tmp_path, labels=3), device="cpu")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"reranker .*no config\.json"):
        CrossEncoderReranker(str(tmp_path), device="cpu")
