"""Ask memory systems the same questions and write down what they answered, what they scored and what it cost.

Examples:
    python evaluate.py --system mlmf --checkpoint outputs/locco/final --tasks locco
    python evaluate.py --config configs/eval/locomo.yaml --system no_memory recent_window full_context --limit 100
    python evaluate.py --system mlmf --checkpoint 'outputs/run_{seed}/final' --seeds 0 1 2
    python evaluate.py --system recent_window --task jsonl --data_file my_conversations.jsonl
    python evaluate.py --ablations table5 --ablation_training configs/train/demo_cloze.yaml configs/train/demo.yaml
    python evaluate.py --compare outputs/eval/a outputs/eval/b --output_dir outputs/eval/comparison
"""

from __future__ import annotations

import sys

from mlmf.config.evaluation import EvalConfig, accept_aliases
from mlmf.config.parse import parse_config, run_script


def main() -> int:
    """Parse, run, print; the exit code is 1 when too many questions failed."""
    summary, _, examples = (__doc__ or "").partition("\n\n")
    config = parse_config(
        EvalConfig, accept_aliases(sys.argv[1:]), prog="evaluate.py", description=summary, epilog=examples
    )

    # after parsing, so that --help and a mistyped option answer at once
    from rich.console import Console

    from mlmf.evaluation.finished import compare_folders
    from mlmf.evaluation.run import run_evaluation

    if config.ablation_training is not None:
        from mlmf.evaluation.ablations import train_variants
        from mlmf.training.run import run_training

        config = train_variants(config, run_training)
    outcome = compare_folders(config) if config.compare else run_evaluation(config)
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(outcome.tables)
    if outcome.report_path is not None:
        console.print(f"Report: {outcome.report_path}", soft_wrap=True)
    return outcome.exit_code


if __name__ == "__main__":
    run_script(main)
