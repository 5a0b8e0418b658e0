"""Scores of problems and of splits: greedy accuracy, unbiased pass@k, mean@k, styles (METHOD §5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dph.evaluation.measures import MEASURES
from dph.metrics.bootstrap import bootstrap_interval
from dph.metrics.passk import mean_at_k, pass_at_k
from dph.models.policy import Policy
from dph.process.progress import progress
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import encode_problems, greedy, sample_groups
from dph.tasks import Task
from dph.types import Group, Problem, SamplingParams
from dph.verifiers import Verifiers

STYLE_SAMPLES = 32
"""Styles are counted in the first so many samples of a problem (paper App. B)."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One problem's results."""

    problem: Problem
    samples: int
    """Samples that could be judged."""
    correct: int
    greedy: bool | None
    """Whether the greedy response is correct; None where none was made or judged."""
    styles: Counter[str]
    """The first STYLE_SAMPLES samples by style; empty where the task knows no styles."""
    styles_correct: Counter[str]
    """The correct ones of them by style."""
    diversity: Mapping[str, float] = field(default_factory=dict)
    """The measures of `evaluate_diversity`; empty where they were not taken."""


def score_group(task: Task, group: Group, greedy_group: Group | None) -> Scored:
    """Results of one problem from its samples and its greedy response."""
    scored = [rollout for rollout in group.rollouts if rollout.verdict.scored]
    styles, correct_styles = Counter[str](), Counter[str]()
    for rollout in scored[:STYLE_SAMPLES]:
        style = task.style(group.problem, rollout.text)
        if style is not None:
            styles[style] += 1
            correct_styles[style] += rollout.verdict.correct
    first = greedy_group.rollouts[0].verdict if greedy_group else None
    return Scored(
        group.problem,
        len(scored),
        sum(rollout.verdict.correct for rollout in scored),
        first.correct if first is not None and first.scored else None,
        styles,
        +correct_styles,
    )


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4 … up to limit."""
    return [1 << i for i in range(limit.bit_length()) if 1 << i <= limit]


def summarise(scored: Sequence[Scored], n: int) -> dict[str, Any]:
    """Metrics of a split with 95 % intervals by bootstrap over problems (layout: see docs/reference/runs.md).

    Problems with fewer than n judged samples enter pass@k only for those k that they reach.
    """
    counts = np.array([(item.samples, item.correct) for item in scored if item.samples > 0])
    metrics: dict[str, Any] = {}
    known_greedy = [float(item.greedy) for item in scored if item.greedy is not None]
    if known_greedy:
        metrics["greedy"] = _interval(known_greedy)
    curve: dict[str, Any] = {}
    if len(counts):
        metrics[f"mean@{n}"] = _interval(mean_at_k(counts[:, 0], counts[:, 1]))
        for k in powers_of_two(n):
            enough = counts[counts[:, 0] >= k]
            if len(enough):
                curve[str(k)] = _interval(pass_at_k(enough[:, 0], enough[:, 1], k))
        metrics.update({f"pass@{k}": value for k, value in curve.items()})
    shares: dict[str, float] = {}
    if any(item.styles for item in scored):
        metrics["styles"] = _interval([len(item.styles) for item in scored])
        metrics["styles_correct"] = _interval([len(set(item.styles_correct) - {"other"}) for item in scored])
        total = sum((item.styles for item in scored), Counter[str]())
        shares = {name: count / total.total() for name, count in sorted(total.items())}
    for name in MEASURES:
        known = [item.diversity[name] for item in scored if name in item.diversity]
        if known:
            metrics[name] = _interval(known)
    return {
        "problems": len(scored),
        "samples": n,
        "metrics": metrics,
        "pass_curve": curve,
        "style_shares": shares,
        "by_kind": _by_kind(scored),
    }


def _interval(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    array = np.asarray(values, dtype=float)
    interval = bootstrap_interval(array)
    return {"mean": float(array.mean()), "low": interval.low, "high": interval.high}


def _by_kind(scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    kinds: dict[str, list[Scored]] = {}
    for item in scored:
        kinds.setdefault(str(item.problem.meta.get("kind", "")), []).append(item)
    if set(kinds) == {""}:
        return {}
    return {kind: _kind_means(items) for kind, items in sorted(kinds.items())}


def _kind_means(items: Sequence[Scored]) -> dict[str, float]:
    """Means over the problems of one kind that could be judged; a metric without any is left out."""
    values = {
        "greedy": [float(item.greedy) for item in items if item.greedy is not None],
        "pass@1": [item.correct / item.samples for item in items if item.samples > 0],
    }
    return {"problems": len(items)} | {name: float(np.mean(found)) for name, found in values.items() if found}


def evaluate_split(
    policy: Policy,
    sampler: Sampler,
    verifiers: Verifiers,
    task: Task,
    problems: Sequence[Problem],
    params: SamplingParams,
    seed: int,
    *,
    max_prompt_tokens: int,
    with_greedy: bool,
    label: str,
    quiet: bool = False,
) -> tuple[list[Scored], list[tuple[Group, Group | None]]]:
    """Sample and judge every problem of a split; returns the scores and the groups behind them."""
    items = encode_problems(policy, problems, max_prompt_tokens, params.max_tokens)
    scored: list[Scored] = []
    groups: list[tuple[Group, Group | None]] = []
    at_once = max(16, 1024 // params.n)
    with progress(label, len(items), quiet=quiet) as shown:
        for start in range(0, len(items), at_once):
            part = items[start : start + at_once]
            sampled = sample_groups(policy, sampler, verifiers, part, params, seed, "eval")
            best = (
                sample_groups(policy, sampler, verifiers, part, greedy(params), seed, "greedy") if with_greedy else None
            )
            for index, group in enumerate(sampled):
                pair = (group, best[index] if best else None)
                groups.append(pair)
                scored.append(score_group(task, *pair))
            shown.advance(len(part))
    return scored, groups


def metric_means(summary: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The means of a summary's metrics under a prefix, for metrics.jsonl."""
    return {f"{prefix}{name}": value["mean"] for name, value in summary["metrics"].items()}
