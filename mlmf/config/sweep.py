"""Settings of ``train.py --sweep``: what is searched, how, and the training that every trial starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from mlmf.config.parse import check_value, leaves
from mlmf.config.training import TrainConfig
from mlmf.errors import UserError, unknown_name

T = TypeVar("T")


@dataclass
class SweepConfig:
    """A search for the settings that do best on users held back from the training ones; test users are never asked."""

    space: dict[str, list[Any]] = field(default_factory=dict)
    """Values to try of each setting of the training, such as model.alpha: [0.5, 0.9]. Empty: one trial, as train says."""
    method: Literal["random", "grid"] = "random"
    """grid tries every combination; random draws some of them, none twice."""
    trials: int = 16
    """random: how many combinations."""
    seed: int = 0
    """Of the draw, and of who is held back."""
    validation_share: float = 0.25
    """Share of the conversations with questions that are held back, rounded up; the same ones in every trial."""
    figure: Literal["overall_f1", "answerable_f1"] = "overall_f1"
    """What the best trial is best in: over all questions held back, or without those about what never happened."""
    output_dir: str = "outputs/sweep"
    """Folder of results.json, table.md, best.yaml and a folder for each trial. A finished trial is not run again."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """The training of every trial. Its conversations are divided; its output_dir is not used."""

    def __post_init__(self) -> None:
        """Refuse a search that cannot be made."""
        if self.trials < 1:
            raise UserError(f"trials must be at least 1, got {self.trials}")
        if not 0.0 < self.validation_share < 1.0:
            raise UserError(f"validation_share must be between 0 and 1, got {self.validation_share}")
        if self.train.dry_run:
            raise UserError("train.dry_run is true, which trains nothing to compare; plan one run without --sweep")
        if self.train.init_from and any(name.startswith("model.") for name in self.space):
            raise UserError(
                f"train.init_from is {self.train.init_from}, whose memory keeps its own settings: search no model.*, or "
                "start from the base model with init_from: null"
            )
        for name, values in self.space.items():
            if not values:
                raise UserError(f"space.{name} is empty: give the values to try")
        first = {name: values[0] for name, values in self.space.items()}
        for name, values in self.space.items():
            for value in values:
                # with the others, since some settings allow each other only together
                with_settings(self.train, {**first, name: value})


def with_settings(config: T, changes: Mapping[str, Any]) -> T:
    """A copy of a dataclass with settings changed, which may lie in sections: ``model.lora.r``.

    Raises:
        UserError: there is no such setting, it may not have that value, or not together with the others.
    """
    known = dict(leaves(type(config)))
    for name, value in changes.items():
        if name not in known:
            raise unknown_name("setting in space", name, known)
        check_value("space", name, value, known[name])
    return _changed(config, changes)


def _changed(config: T, changes: Mapping[str, Any]) -> T:
    """All at once, section by section: each is checked as it will be."""
    fields: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        section, _, rest = name.partition(".")
        if rest:
            sections.setdefault(section, {})[rest] = value
        else:
            fields[name] = value
    fields |= {name: _changed(getattr(config, name), inner) for name, inner in sections.items()}
    made: T = replace(config, **fields)  # type: ignore[type-var]
    return made
