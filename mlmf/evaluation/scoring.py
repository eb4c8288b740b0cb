"""Score the answers of a run under all its keys, and write what belongs to each task and system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlmf.config.evaluation import EvalConfig
from mlmf.evaluation.asking import Pair, Stored, Task
from mlmf.evaluation.consistency import LabelledAnswer, LexicalJudge, judge_accuracy
from mlmf.evaluation.judge import LLMJudge, describe_judge
from mlmf.evaluation.results import build_results, score_key, write_json
from mlmf.evaluation.scored import Scored, write_scores
from mlmf.evaluation.usage import ratios


def score_all(
    config: EvalConfig,
    tasks: dict[str, Task],
    stored: dict[Pair, Stored],
    trained: dict[Pair, dict[str, Any] | None],
    labels: Sequence[LabelledAnswer],
    llm_judge: LLMJudge | None,
) -> dict[Pair, dict[str, Any]]:
    """Score all answers under all keys, and write ``scores.jsonl`` and ``results.json`` of each task and system.

    Args:
        config: of the run.
        tasks: by name.
        stored: answers to score.
        trained: what each system's checkpoint was trained on, see :func:`mlmf.evaluation.results.build_results`.
        labels: answers that people labelled, to measure the judges of consistency with; may be empty.
        llm_judge: of column J, if it is wanted.
    """
    output_dir = Path(config.output_dir)
    judge = LexicalJudge(config.consistency_threshold)
    scoring = {
        "success_threshold": config.success_threshold,
        "judge": judge.name,
        "consistency_threshold": judge.threshold,
        "judge_accuracy": judge_accuracy(judge, labels) if labels else None,
        "llm_judge": describe_judge(config, judge_accuracy(llm_judge, labels) if labels and llm_judge else None),
    }
    results: dict[Pair, dict[str, Any]] = {}
    for (task, name), found in stored.items():
        scored: dict[str, list[Scored]] = {}
        entries: dict[str, dict[str, Any]] = {}
        for key in tasks[task].keys:
            scored[key.name], entries[key.name] = score_key(
                task,
                found.answers,
                key,
                judge=judge,
                llm_judge=llm_judge,
                success_threshold=config.success_threshold,
                split=config.retention,
                seed=config.seeds[0],
            )
        write_scores(output_dir / task / name / "scores.jsonl", scored)
        results[task, name] = build_results(
            name,
            tasks[task].data,
            found.answers,
            entries,
            settings=found.settings,
            scoring=scoring,
            trained_on=trained[task, name],
        )
    for (task, name), entry in results.items():
        if (task, "full_context") in results:
            entry["ratios_to_full_context"] = ratios(entry["usage"], results[task, "full_context"]["usage"])
        write_json(output_dir / task / name / "results.json", entry)
    return results
