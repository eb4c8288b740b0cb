"""Settings of ``python -m mlmf.evaluation.reference``: which finished runs stand in ``RESULTS.md``."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlmf.errors import UserError


@dataclass
class ReferenceConfig:
    """From labels to what evaluate.py left for one task and system: DIR/TASK/SYSTEM.

    A folder that is not there is not measured, unless figures were kept when it was.
    """

    locomo_zero_shot: dict[str, str] = field(default_factory=dict)
    """LoCoMo by systems that never trained on it."""
    locomo_in_domain: dict[str, str] = field(default_factory=dict)
    """LoCoMo by checkpoints that trained on other conversations of it."""
    locco: dict[str, str] = field(default_factory=dict)
    """LOCCO's test users; with --retention balanced there are also R6 and the matrix over periods."""
    ablations: dict[str, str] = field(default_factory=dict)
    """The parts of the memory left out one by one, all on the same questions; each is tested against main."""
    training: dict[str, str] = field(default_factory=dict)
    """The same questions before and after training."""
    speed: dict[str, str] = field(default_factory=dict)
    """Systems asked side by side with full_context in one evaluation, on a few conversations: what they cost, and the speedup
    of those of the same label that were asked everything without it."""
    main: str = "mlmf"
    """Label that is the memory model's headline in each group, and the full model among the ablations."""
    errors: str | None = None
    """Markdown file of typical errors that people read and classified; it is put at the end."""
    plots: str | None = None
    """Folder for plots beside the paper's figures, which the page shows; none are drawn without. Needs matplotlib."""
    output: str = "RESULTS.md"
    """The page."""
    figures: str = "results/reference.json"
    """Its headline figures for programs; null where nothing was measured."""
    kept: str | None = "results/runs"
    """Folder in which the figures of every run are kept, by group and label, and from which they are taken where the run's
    own folder is gone; null keeps none."""
    overwrite: bool = False
    """Also where runs are gone whose figures stand there now."""
    seed: int = 0
    """Of the bootstrap of the paired tests."""

    def __post_init__(self) -> None:
        """Refuse ablations of nothing, and labels that are no names of files."""
        groups = (self.locomo_zero_shot, self.locomo_in_domain, self.locco, self.training, self.speed, self.ablations)
        for label in (label for group in groups for label in group):
            if label == "tests" or not label or "/" in label or "\\" in label or label.startswith("."):
                raise UserError(f"label {label!r} cannot name a file beside tests.json: give another one")
        if self.ablations and self.main not in self.ablations:
            raise UserError(f"ablations need the full model under the label {self.main!r}, got {list(self.ablations)}")
