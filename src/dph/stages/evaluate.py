"""Evaluation: greedy accuracy, unbiased pass@k, mean@k and diversity on held-out problems (paper §6)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.build import make_plan_reader, make_sampler, make_task, make_verifiers, select, split_names
from dph.config import EvalConfig
from dph.evaluation.evaluator import Evaluator
from dph.evaluation.measures import MEASURES, RULES, diversity_of
from dph.evaluation.scoring import Scored, score_group, summarise
from dph.models.policy import Policy
from dph.models.precision import settled
from dph.process.progress import progress, say
from dph.runs.directory import RunDir
from dph.runs.files import write_atomically, written_atomically
from dph.runs.pinned import content_hashes
from dph.sampling.protocol import close
from dph.sampling.rollouts import usable_problems
from dph.tasks import Task
from dph.types import Group, SamplingParams, as_text
from dph.verifiers import Verifiers, judging_versions
from dph.verifiers.function import RewardFunction
from dph.verifiers.sql.plan import PlanReader


def evaluate(config: EvalConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage on every split named in the settings; returns its run directory.

    reward: judges every response instead of the verifiers; see `dph.stages.train.train`.
    """
    run = RunDir.start(config.out, "eval", config, resume=resume, versions=judging_versions())
    if run.complete:
        say(f"{run.path} is complete already")
        return run.path
    config = replace(config, model=settled(config.model, run))
    task = make_task(config.task)
    chosen = {
        split: select(task, split, config.task.limit, shuffle=config.task.shuffle)
        for split in split_names(config.task.split)
    }
    policy = Policy.load(config.model)
    rollout = config.rollout
    sampler = make_sampler(config.sampler, policy, config.model, rollout.longest)
    params = rollout.params()
    splits: dict[str, Any] = {}
    problem_rows: list[dict[str, Any]] = []
    completion_rows: list[dict[str, Any]] = []
    with (
        make_verifiers(config.verifier, config.reward, reward, answers=True) as verifiers,
        make_plan_reader(config.verifier) as plans,
    ):
        evaluator = Evaluator(policy, sampler, verifiers, params, rollout.max_prompt_tokens, config.seed, config.greedy)
        for split, problems in chosen.items():
            problems = usable_problems(verifiers, problems)
            contents = content_hashes(problems)
            groups = evaluator.responses(problems, f"evaluating {split}")
            scored = _with_diversity(task, groups, params, plans, verifiers, f"diversity of {split}")
            splits[split] = summarise(scored, rollout.n)
            problem_rows += [_problem_row(split, item) | {"content": contents[item.problem.id]} for item in scored]
            completion_rows += [row for pair in groups for row in _completion_rows(split, task, *pair)]
    close(sampler)
    for name, rows in (("problems", problem_rows), ("completions", completion_rows)):
        with written_atomically(run.path / f"{name}.parquet") as file:
            pq.write_table(pa.Table.from_pylist(rows), file)
    label = label_of(config)
    scores = {"label": label, "model": config.model.path, "measures": RULES, "splits": splits}
    write_atomically(run.path / "scores.json", json.dumps(scores, indent=1) + "\n")
    run.finish(weight_hash=policy.weight_hash(), tokenizer_hash=policy.tokenizer_hash(), label=label)
    for split, summary in splits.items():
        shown = [f"{name} {_with_count(value, summary['problems'])}" for name, value in summary["metrics"].items()]
        say(f"{split}: {summary['problems']} problems, " + ", ".join(shown))
    return run.path


def _with_count(value: Mapping[str, float], problems: int) -> str:
    """A mean, and the number of problems that it is over if some of the split's lack the metric."""
    return f"{value['mean']:.3f}" + (f" ({value['problems']} problems)" if value["problems"] < problems else "")


def _with_diversity(
    task: Task,
    groups: Sequence[tuple[Group, Group | None]],
    params: SamplingParams,
    plans: PlanReader,
    verifiers: Verifiers,
    label: str,
) -> list[Scored]:
    """Scores of every problem, with the measures of diversity."""
    measured = []
    with progress(label, len(groups)) as shown:
        for group, best in groups:
            scored = score_group(task, group, best)
            items = [(group.problem, rollout.text) for rollout in group.rollouts]
            answers = verifiers.answers(items) if verifiers.tells_answers(group.problem) else ()
            measured.append(replace(scored, diversity=diversity_of(group, params, plans, answers)))
            shown.advance()
    return measured


def label_of(config: EvalConfig) -> str:
    """The name in tables: as given, or the run (or checkpoint) that holds the folder `model`, or the model's own."""
    path = Path(config.model.path)
    return config.label or (path.parent.name if path.name == "model" else path.name) or config.model.path


def _problem_row(split: str, item: Scored) -> dict[str, Any]:
    return {
        "split": split,
        "id": item.problem.id,
        "kind": str(item.problem.meta.get("kind", "")),
        "prompt": as_text(item.problem.prompt),
        "answer": str(item.problem.answer),
        "samples": item.samples,
        "correct": item.correct,
        "greedy": item.greedy,
        "styles": len(item.styles) or None,
        "styles_correct": item.distinct_styles_correct if item.styles else None,
        **{name: item.diversity.get(name) for name in MEASURES},
    }


def _completion_rows(split: str, task: Task, group: Group, best: Group | None) -> list[dict[str, Any]]:
    numbered = list(enumerate(group.rollouts)) + ([(-1, best.rollouts[0])] if best else [])
    return [
        {
            "split": split,
            "id": group.problem.id,
            "sample": number,
            "text": rollout.text,
            "outcome": str(rollout.verdict.outcome),
            "reward": rollout.reward,
            "style": task.style(group.problem, rollout.text) or "",
            "tokens": len(rollout.completion.token_ids),
            "finish_reason": rollout.completion.finish_reason,
        }
        for number, rollout in numbered
    ]
