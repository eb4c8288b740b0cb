"""The output folder of a run: settings, environment, log, and checkpoints that a run can be taken up from."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mlmf import __version__, checkpoint
from mlmf.errors import UserError
from mlmf.model import MLMFModel
from mlmf.paths import atomic_folder, atomic_write_text, check_writable_folder
from mlmf.training.optimiser import MasterAdamW

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "peft", "accelerate", "datasets")
LEFT_BY_A_RUN = ("config.yaml", "environment.json", "metrics.jsonl", "checkpoints", "final", "wandb")
STATE, OPTIMISER = "trainer_state.json", "optimiser.safetensors"


class RunFolder:
    """Paths of one run, and the rules about what may be overwritten."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing is created yet."""
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.final = path / "final"

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse a folder that must not be written to; changes nothing, so that it can be asked early.

        Raises:
            UserError: it is not empty, and neither resuming nor overwriting was asked for.
        """
        check_writable_folder(self.path, "output_dir")
        if self._is_used() and not resume and not overwrite:
            raise UserError(
                f"output_dir {self.path} is not empty. Choose another, go on with "
                "--resume_from_checkpoint latest, or start over with --overwrite_output_dir true"
            )

    def prepare(self, *, resume: bool, overwrite: bool) -> None:
        """Create the folder; ``overwrite`` removes what an earlier run left there, and nothing else."""
        self.check(resume=resume, overwrite=overwrite)
        for name in () if resume else LEFT_BY_A_RUN:
            old = self.path / name
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)

    def _is_used(self) -> bool:
        return self.path.is_dir() and any(self.path.iterdir())

    def describe(self, config_yaml: str, facts: dict[str, Any]) -> None:
        """Write ``config.yaml`` and ``environment.json``."""
        environment = {
            "command": sys.argv,
            "git_commit": git_commit(),
            "python": platform.python_version(),
            "packages": {"mlmf": __version__, **{name: version(name) for name in PACKAGES}},
            "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **facts,
        }
        atomic_write_text(self.path / "config.yaml", config_yaml)
        atomic_write_text(self.path / "environment.json", json.dumps(environment, indent=2) + "\n")

    def find(self, wanted: str) -> Path | None:
        """The checkpoint to resume from: ``latest`` or a path; ``None`` where ``latest`` finds none.

        Raises:
            UserError: the path holds no checkpoint of a running training.
        """
        if wanted == "latest":
            complete = [p for p in self.checkpoints.glob("step_*") if (p / STATE).is_file()]
            if not complete:
                logger.info("no checkpoint in %s yet: starting anew", self.checkpoints)
                return None
            return max(complete)
        if not (Path(wanted) / STATE).is_file():
            raise UserError(
                f"resume_from_checkpoint {wanted}: {STATE} is missing there. Give latest or a step_* folder"
            )
        return Path(wanted)

    def save(self, model: MLMFModel, optimiser: MasterAdamW, step: int, facts: dict[str, Any], limit: int) -> Path:
        """Write ``checkpoints/step_N``, whole or not at all, and drop the oldest beyond ``limit``."""
        folder = self.checkpoints / f"step_{step:06d}"
        tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in optimiser.tensors().items()}
        tensors["rng"] = torch.get_rng_state()
        with atomic_folder(folder) as partial:
            checkpoint.save(model, partial / "model", facts)
            save_file(tensors, partial / OPTIMISER)
            (partial / STATE).write_text(json.dumps({"step": step, **facts}) + "\n", encoding="utf-8")
        unfinished = self.checkpoints.glob(".step_*")  # of a run that was killed while it saved
        for old in (*sorted(self.checkpoints.glob("step_*"))[:-limit], *unfinished):
            shutil.rmtree(old)
        return folder

    def load(self, folder: Path, model: MLMFModel, optimiser: MasterAdamW, facts: dict[str, Any]) -> int:
        """Take up a checkpoint; returns the step to go on from.

        Raises:
            UserError: it belongs to a run with other data or settings.
        """
        try:
            saved = json.loads((folder / STATE).read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{folder / STATE} is damaged: {error}. {self._others(folder)}") from error
        for key, value in facts.items():
            if saved.get(key) != value:
                raise UserError(
                    f"{folder} was made with {key} = {saved.get(key)!r}, now it is {value!r}: "
                    "resume with the same settings, or start anew in another output_dir"
                )
        checkpoint.load_weights(model, folder / "model")
        try:
            tensors = load_file(folder / OPTIMISER)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{folder / OPTIMISER} is damaged: {error}. {self._others(folder)}") from error
        torch.set_rng_state(tensors.pop("rng"))
        optimiser.load_tensors(tensors)
        return int(saved["step"])

    def _others(self, damaged: Path) -> str:
        left = sorted(str(p) for p in self.checkpoints.glob("step_*") if p.name != damaged.name)
        return f"Resume from {left[-1]}" if left else "There is no other checkpoint: start over in another output_dir"

    def truncate_log(self, step: int) -> None:
        """Forget log lines after ``step``: they are written again."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        # a killed process may leave half a line at the end
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        atomic_write_text(self.metrics, "".join(f"{line}\n" for line in kept))


def git_commit() -> str | None:
    """Commit of the source the package runs from, with ``-dirty`` where files differ; ``None`` outside a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None
