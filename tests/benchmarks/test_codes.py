from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.codes import read_variance_kept
from mlmf.config.model import LoraSettings, MLMFConfig
from mlmf.data.tasks import load_task
from mlmf.model import MLMFModel


def test_wide_codes_keep_everything_narrow_ones_less_and_rounding_costs_little(tmp_path: Path) -> None:
    one, two = load_task("locco", split="test").conversations[:2]
    kept = {}
    for code_dim in (8, 32, 10_000):
        model = MLMFModel.from_base("tiny-random", MLMFConfig(code_dim=code_dim, lora=LoraSettings(r=0)))
        kept[code_dim] = read_variance_kept(model, one.sessions[:6], two.sessions[:3], tmp_path)
    shares = [kept[code_dim]["read_variance_kept"] for code_dim in (8, 32, 10_000)]
    assert shares == sorted(shares) and shares[0] > 0.1 and shares[1] < 0.99
    assert shares[2] == pytest.approx(1, abs=1e-4)
    for one_width in kept.values():
        assert 0 <= one_width["read_variance_kept"] - one_width["read_variance_kept_int8"] < 0.02
