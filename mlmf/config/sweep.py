"""Settings of ``train.py --sweep``: what is searched, how, and the training that every trial starts from."""

from __future__ import annotations

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
            for value in values:
                with_setting(self.train, name, value)


def with_setting(config: T, name: str, value: Any) -> T:
    """A copy of a dataclass with one setting changed, which may lie in a section: ``model.lora.r``.

    Raises:
        UserError: there is no such setting, or it may not have that value.
    """
    known = dict(leaves(type(config)))
    if name not in known:
        raise unknown_name("setting in space", name, known)
    check_value("space", name, value, known[name])
    path = name.split(".")
    owners: list[Any] = [config]
    for section in path[:-1]:
        owners.append(getattr(owners[-1], section))
    for owner, field_name in zip(reversed(owners), reversed(path), strict=True):
        value = replace(owner, **{field_name: value})
    changed: T = value
    return changed
