"""Train a memory model on multi-session dialogues.

Examples:
    python train.py --config configs/train/locco.yaml
    python train.py --config configs/train/locco.yaml --model.base_model Qwen/Qwen3-0.6B --output_dir outputs/qwen
    python train.py --config configs/train/locco.yaml --resume_from_checkpoint latest
    accelerate launch --num_processes 2 train.py --config configs/train/locco.yaml   (two GPUs)
    torchrun --nproc_per_node 2 train.py --config configs/train/locco.yaml           (two processes without)
"""

from __future__ import annotations

from mlmf.config.parse import parse_config, run_script
from mlmf.config.training import TrainConfig


def main() -> int:
    """Parse and run."""
    summary, _, examples = (__doc__ or "").partition("\n\n")
    config = parse_config(TrainConfig, None, prog="train.py", description=summary, epilog=examples)

    # after parsing, so that --help and a mistyped option answer at once
    from mlmf.training.run import run_training

    run_training(config)
    return 0


if __name__ == "__main__":
    run_script(main)
