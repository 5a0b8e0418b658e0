"""Evaluation: greedy accuracy, unbiased pass@k, mean@k and diversity on held-out problems (paper §6)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.build import make_sampler, make_task, make_verifiers, select, split_names
from dph.config import EvalConfig, EvaluatedModelConfig, absolute, differences
from dph.errors import UserError, counted
from dph.evaluation.evaluator import Evaluator, problems_at_once
from dph.measure.metrics import (
    DIVERSITY_METRICS,
    TOOL_METRICS,
    Scores,
    diversity_of,
    greedy_verdict,
    score_group,
    summarise,
    tool_use,
)
from dph.models.chat import noted_rendering
from dph.models.device import settled
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.progress import say, warn
from dph.runs.chunks import Chunks
from dph.runs.directory import RunDir, find_model
from dph.runs.files import write_atomically, written_atomically
from dph.runs.pinned import content_hashes
from dph.sampling.rollouts import Prompted, encode_problems, refuse_unjudged, settled_rows, still_usable
from dph.tasks import Task, style_of
from dph.types import Group, Problem, Rollout, as_text
from dph.verifiers import Verifiers, judging_versions
from dph.verifiers.function import RewardFunction

_Item = tuple[str, Prompted]
"""The name of a split, and one of its problems."""
_OF_PROBLEM = ("samples", "correct", "greedy", "styles", "styles_correct", *DIVERSITY_METRICS)
"""The scores of a problem that problems.parquet has."""


def evaluate(config: EvalConfig, *, resume: bool = False, reward: RewardFunction | None = None) -> Path:
    """Run the stage on every split that the settings name. Returns its run directory.

    reward: a function that judges every response in place of the verifiers (see `dph.stages.train.train`). Raises
    UserError if the data or the model cannot be read, or if too many responses could not be judged.
    """
    world, versions = World.join(), judging_versions()
    run = world.decided(lambda: RunDir.start(config.out, "eval", config, resume=resume, versions=versions))
    if run.complete:
        return run.path
    config = replace(config, model=settled(config.model, run, world))

    def load() -> tuple[Task, dict[str, list[Problem]], Policy]:
        task, settings = make_task(config.task), config.task
        # `requires` is for training problems only, because a model is also evaluated outside its domain
        splits = split_names(settings.split)
        chosen = {split: select(task, split, settings.limit, shuffle=settings.shuffle) for split in splits}
        return task, chosen, Policy.load(config.model)

    task, chosen, policy = world.together(load)
    contents = {split: content_hashes(problems) for split, problems in chosen.items()}
    facts = {"weight_hash": policy.weight_hash(), "tokenizer_hash": policy.tokenizer_hash(), "label": label_of(config)}
    inputs = {"the model's weights": facts["weight_hash"], "the tokenizer's rules": facts["tokenizer_hash"]}
    noted_rendering(run, policy, world)
    if world.leads:
        _warn_of_other_prompts(config.model)
    hashes = {f"{split}: {id}": content for split in contents for id, content in contents[split].items()}
    rollout, params = config.rollout, config.rollout.params()
    with (
        Chunks(run.path, inputs, hashes, world) as chunks,
        make_verifiers(config.verifier, config.reward, reward, answers=True) as verifiers,
    ):
        items: list[_Item] = []
        for split, problems in chosen.items():
            usable = still_usable(chunks, verifiers, problems, training=False)
            encoded = encode_problems(policy, usable, rollout, rollout.max_prompt_tokens)
            items += [(split, item) for item in encoded]
        settings = settled_rows(config.sampler, policy, [item for _, item in items], rollout, run, world)
        sampler = make_sampler(settings, policy, config.model, rollout.longest)
        evaluator = Evaluator(policy, sampler, verifiers, params, rollout.max_prompt_tokens, config.seed, config.greedy)
        score = partial(_sampled, task, evaluator, verifiers, config.max_unjudged)
        at_once, doing = problems_at_once(rollout.n), f"evaluating {', '.join(chosen)}"
        samples = chunks.map("problems", items, at_once, score, doing)
        greedy: list[dict[str, Any]] = [{"greedy": None, "rows": []}] * len(items)
        if config.greedy:
            decode = partial(_decoded, task, evaluator)
            greedy = chunks.map("greedy responses", items, problems_at_once(1), decode, "decoding greedily")
        sampler.close()
        if not world.leads:
            world.wait()
            return run.path
        tool = TOOL_METRICS if rollout.turns > 1 else ()
        scored: dict[str, list[Scores]] = {split: [] for split in chosen}
        rows: dict[str, list[dict[str, Any]]] = {"problems": [], "completions": []}
        for (split, item), sample, best in zip(items, samples, greedy, strict=True):
            scored[split].append(score := sample["score"] | {"greedy": best["greedy"]})
            row = _problem_row(split, item.problem) | {name: score.get(name) for name in (*_OF_PROBLEM, *tool)}
            rows["problems"].append(row | {"content": contents[split][item.problem.id]})
            rows["completions"] += sample["rows"] + best["rows"]
        for name, table in rows.items():
            with written_atomically(run.path / f"{name}.parquet") as file:
                pq.write_table(pa.Table.from_pylist(table), file)
        splits = {split: summarise(scores, rollout.n) for split, scores in scored.items()}
        scores = {"label": facts["label"], "model": config.model.path, "splits": splits}
        write_atomically(run.path / "scores.json", json.dumps(scores, indent=1) + "\n")
        run.finish(model=absolute(config.model.path), **facts)
    _say_scores(splits)
    world.wait()
    return run.path


def _warn_of_other_prompts(config: EvaluatedModelConfig) -> None:
    """Warn if the run that trained the model rendered prompts in another way than this evaluation does."""
    try:
        run = find_model(config.path).run
        there = {} if run is None else RunDir.open(run).settings()["model"]
    except (UserError, KeyError):  # an evaluation does not depend on the origin of its model
        return
    there = {name: there.get(name, getattr(EvaluatedModelConfig(), name)) for name in ("chat_template_kwargs", "date")}
    changed = differences(there, {name: getattr(config, name) for name in there})
    if run is not None and changed:
        warn(f"the model of {run} was trained with other prompts than it is evaluated with ({'; '.join(changed)})")


def _sampled(
    task: Task, evaluator: Evaluator, verifiers: Verifiers, most: float, items: Sequence[_Item]
) -> list[dict[str, Any]]:
    """The scores of each problem, without its greedy response, and its rows of completions. most: the share of
    responses that may remain without a verdict."""
    values, groups = [], evaluator.sampled([item for _, item in items])
    refuse_unjudged(groups, most)
    for (split, _), group in zip(items, groups, strict=True):
        texts = [(group.problem, rollout.text) for rollout in group.rollouts]
        answers, solutions = verifiers.tell("answers", texts), verifiers.tell("solutions", texts)
        score = score_group(task, group, None) | diversity_of(group, evaluator.params, answers, solutions)
        score |= tool_use([group]) if evaluator.params.turns > 1 else {}
        values.append({"score": score, "rows": _completion_rows(split, task, group, turns=evaluator.params.turns)})
    return values


def _decoded(task: Task, evaluator: Evaluator, items: Sequence[_Item]) -> list[dict[str, Any]]:
    """For each problem, whether its greedy response is correct, and its row of completions."""
    groups = evaluator.decoded([item for _, item in items])
    return [
        {
            "greedy": greedy_verdict(group),
            "rows": _completion_rows(split, task, group, first=-1, turns=evaluator.params.turns),
        }
        for (split, _), group in zip(items, groups, strict=True)
    ]


def _say_scores(splits: Mapping[str, Mapping[str, Any]]) -> None:
    for split, summary in splits.items():
        shown = [counted(summary["problems"], "problem")]
        for name, value in summary["metrics"].items():
            fewer = f" ({counted(value['problems'], 'problem')})" if value["problems"] < summary["problems"] else ""
            shown.append(f"{name} {value['mean']:.3f}{fewer}")
        say(f"{split}: " + ", ".join(shown))


def label_of(config: EvalConfig) -> str:
    """The label of an evaluation in tables: the label in the settings, or else the name of the run or checkpoint that
    holds the folder `model`, or else the name of the model itself."""
    path = Path(config.model.path)
    return config.label or (path.parent.name if path.name == "model" else path.name) or config.model.path


def _problem_row(split: str, problem: Problem) -> dict[str, Any]:
    facts = {"split": split, "id": problem.id, "kind": str(problem.meta.get("kind", ""))}
    return facts | {"prompt": as_text(problem.prompt), "answer": str(problem.answer)}


def _completion_rows(split: str, task: Task, group: Group, first: int = 0, turns: int = 1) -> list[dict[str, Any]]:
    """The rows of a group in completions.parquet. first: the number of the first row. turns: most turns of a response;
    with several, the rows have what the response said and read before its last turn, too."""
    return [
        {
            "split": split,
            "id": group.problem.id,
            "sample": number,
            "text": rollout.text,
            "outcome": str(rollout.verdict.outcome),
            "detail": rollout.verdict.detail,
            "reward": float(rollout.reward),
            "style": style_of(task, group.problem, rollout.text) or "",
            "tokens": rollout.completion.length,
            "finish_reason": rollout.completion.finish_reason,
            **(_calls(rollout) if turns > 1 else {}),
        }
        for number, rollout in enumerate(group.rollouts, first)
    ]


def _calls(rollout: Rollout) -> dict[str, Any]:
    """How a response called a tool, and the text of all its turns and results."""
    completion = rollout.completion
    calls = {"tool_calls": completion.calls, "failed_calls": completion.failed_calls}
    return calls | {"transcript": rollout.transcript or rollout.text}
