"""Scores of problems and of splits: greedy accuracy, unbiased pass@k, mean@k, styles (paper §6)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dph.evaluation.intervals import bootstrap_interval
from dph.evaluation.measures import AMONG, MEASURES
from dph.evaluation.passk import powers_of_two, sample_metrics
from dph.tasks import Task
from dph.types import Group, Problem

_MOST_SHARES = 24
"""Shares of more styles are left out: they belong to single problems, as solutions do."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One problem's results."""

    problem: Problem
    samples: int
    """Samples that could be judged."""
    correct: int
    greedy: bool | None
    """Whether the greedy response is correct; None where there is none or it could not be judged."""
    styles: Counter[str]
    """The first AMONG samples by style (paper App. B); empty where the task knows no styles."""
    styles_correct: Counter[str]
    """The correct samples among them, by style."""
    diversity: Mapping[str, float] = field(default_factory=dict)
    """Measures of diversity by name (`dph.evaluation.measures`); empty where they were not taken."""

    @property
    def distinct_styles_correct(self) -> int:
        """Named styles among the correct samples; "other" does not count."""
        return len(self.styles_correct.keys() - {"other"})


def score_group(task: Task, group: Group, greedy_group: Group | None) -> Scored:
    """Results of one problem from its samples and its greedy response."""
    scored = [rollout for rollout in group.rollouts if rollout.verdict.scored]
    styles, correct_styles = Counter[str](), Counter[str]()
    for rollout in scored[:AMONG]:
        style = task.style(group.problem, rollout.text)
        if style is not None:
            styles[style] += 1
            correct_styles[style] += rollout.verdict.correct
    return Scored(
        group.problem,
        len(scored),
        sum(rollout.verdict.correct for rollout in scored),
        greedy_verdict(greedy_group) if greedy_group else None,
        styles,
        +correct_styles,
    )


def greedy_verdict(group: Group) -> bool | None:
    """Whether the only response of a group is correct; None if it could not be judged."""
    verdict = group.rollouts[0].verdict
    return verdict.correct if verdict.scored else None


def summarise(scored: Sequence[Scored], n: int) -> dict[str, Any]:
    """Metrics of a split with 95 % intervals by bootstrap over problems (layout: docs/reference/runs.md).

    A metric's "problems" is the number of problems that it is the mean over: those that have it. Problems with fewer
    than n judged samples have pass@k only for those k that they reach.
    """
    metrics = {name: _with_interval(values) for name, values in metric_values(scored, n).items()}
    styles = sum((item.styles for item in scored), Counter[str]())
    return {
        "problems": len(scored),
        "samples": n,
        "metrics": metrics,
        "pass_curve": {str(k): metrics[f"pass@{k}"] for k in powers_of_two(n) if f"pass@{k}" in metrics},
        "style_shares": {
            name: count / styles.total() for name, count in sorted(styles.items()) if len(styles) <= _MOST_SHARES
        },
        "by_kind": _by_kind(scored),
    }


def metric_values(scored: Sequence[Scored], n: int) -> dict[str, NDArray[np.float64]]:
    """Every metric's value for each problem that has one; a metric that no problem has is left out."""
    metrics: dict[str, Iterable[float]] = {
        "greedy": [item.greedy for item in scored if item.greedy is not None],
        **sample_metrics([(item.samples, item.correct) for item in scored], n),
        "styles": [len(item.styles) for item in scored if item.styles],
        "styles_correct": [item.distinct_styles_correct for item in scored if item.styles],
        **{name: [item.diversity[name] for item in scored if name in item.diversity] for name in MEASURES},
    }
    arrays = {name: np.asarray(values, dtype=float) for name, values in metrics.items()}
    return {name: values for name, values in arrays.items() if values.size}


def _with_interval(values: NDArray[np.float64]) -> dict[str, float]:
    interval = bootstrap_interval(values)
    return {"mean": interval.estimate, "low": interval.low, "high": interval.high, "problems": len(values)}


def _by_kind(scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """Means over the problems of each kind that have the metric; none if the problems have no kinds."""
    kinds: dict[str, list[Scored]] = {}
    for item in scored:
        kinds.setdefault(str(item.problem.meta.get("kind", "")), []).append(item)
    if set(kinds) == {""}:
        return {}
    summaries = {}
    for kind, items in sorted(kinds.items()):
        values = metric_values(items, 1)
        named = {"greedy": values.get("greedy"), "pass@1": values.get("mean@1")}
        means = {name: float(numbers.mean()) for name, numbers in named.items() if numbers is not None}
        summaries[kind] = {"problems": len(items)} | means
    return summaries
