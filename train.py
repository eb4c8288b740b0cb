"""Train a memory model on multi-session dialogues.

Examples:
    python train.py --config configs/train/locco_cloze.yaml
    python train.py --config configs/train/locco.yaml               (starts from what the first one trained)
    python train.py --config configs/train/locco_cloze.yaml --model.base_model Qwen/Qwen3-0.6B --output_dir outputs/qwen
    python train.py --config configs/train/locco_cloze.yaml --resume_from_checkpoint latest
    accelerate launch --num_processes 2 train.py --config configs/train/locco_cloze.yaml   (two GPUs)
    torchrun --nproc_per_node 2 train.py --config configs/train/locco_cloze.yaml           (two processes without)
    python train.py --sweep configs/train/sweep.yaml          (search for settings; see the file, and mlmf/config/sweep.py)
"""

from __future__ import annotations

import sys

from mlmf.config.parse import parse_config, run_script
from mlmf.config.sweep import SweepConfig
from mlmf.config.training import TrainConfig


def main() -> int:
    """Parse and run."""
    if "--sweep" in sys.argv:
        return sweep(sys.argv[1:])
    summary, _, examples = (__doc__ or "").partition("\n\n")
    config = parse_config(TrainConfig, None, prog="train.py", description=summary, epilog=examples)

    # after parsing, so that --help and a mistyped option answer at once
    from mlmf.training.run import run_training

    run_training(config)
    return 0


def sweep(arguments: list[str]) -> int:
    """Search for settings: ``--sweep FILE``, and options of :class:`SweepConfig` such as ``--train.max_steps 50``."""
    place = arguments.index("--sweep")
    options = ["--config", *arguments[place + 1 : place + 2], *arguments[:place], *arguments[place + 2 :]]
    summary = "Search for the settings that do best on users held back from training."
    config = parse_config(SweepConfig, options, prog="train.py --sweep FILE", description=summary)

    from rich.console import Console

    from mlmf.evaluation.tables import markdown_grid
    from mlmf.sweep import run_sweep, sweep_grid

    results = run_sweep(config)
    Console().print(markdown_grid(sweep_grid(results)), soft_wrap=True, markup=False)
    return 0


if __name__ == "__main__":
    run_script(main)
