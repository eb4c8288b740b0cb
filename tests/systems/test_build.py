"""Names become systems, and what is missing is said before anything is loaded."""

from __future__ import annotations

import pytest

from mlmf.config.evaluation import EvalConfig
from mlmf.errors import UserError
from mlmf.systems.baselines import RecentWindow
from mlmf.systems.build import SYSTEMS, answer_model_loader, build_system, check_systems


def test_text_systems_share_one_answer_model() -> None:
    config = EvalConfig(system=["no_memory", "recent_window"], base_model="tiny-random", window_tokens=7)
    loader = answer_model_loader(config)
    first, second = (build_system(name, config, loader) for name in config.system_names)
    assert first.language_model is second.language_model
    assert isinstance(second, RecentWindow)
    assert second.budget == 7


def test_every_system_answers_to_its_own_name() -> None:
    config = EvalConfig(base_model="tiny-random")
    loader = answer_model_loader(config)
    names = [name for name in SYSTEMS if name != "mlmf"]
    assert [build_system(name, config, loader).name for name in names] == names


def test_an_unknown_system_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"unknown system 'ful_context'\. Did you mean 'full_context'"):
        check_systems(EvalConfig(system="no_memory,ful_context"))


def test_mlmf_needs_a_checkpoint() -> None:
    with pytest.raises(UserError, match="give --checkpoint DIR"):
        check_systems(EvalConfig(system="mlmf"))


def test_a_checkpoint_must_be_there() -> None:
    with pytest.raises(UserError, match="checkpoint absent: no such folder"):
        check_systems(EvalConfig(system="mlmf", checkpoint="absent"))
