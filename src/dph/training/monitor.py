"""What a training run measures besides its losses: rollouts, time, memory, and held-out problems."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dph.build import select
from dph.config import MonitorConfig
from dph.errors import UserError
from dph.evaluation.evaluator import Evaluator
from dph.evaluation.scoring import Scored, metric_counts, metric_interval, metric_means, score_group
from dph.process.distributed import World
from dph.runs.directory import read_metrics
from dph.runs.files import write_atomically
from dph.runs.samples import MONITOR, Sample
from dph.tasks import Task
from dph.training.alarms import PassAlarm
from dph.training.checkpoints import path_of, steps_saved
from dph.training.explore import Drawn, is_informative
from dph.types import Group, Problem


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """Sums over a step's rollouts and groups of all processes (D_exp only: stored responses never enter)."""

    sampled: Mapping[str, float]
    """Over all groups, those that dynamic sampling dropped included."""
    kept: Mapping[str, float] | None
    """Over the groups that dynamic sampling kept; None where it is off."""
    attempted: int
    """Prompts drawn, those of dropped groups included."""

    @property
    def tokens(self) -> float:
        """Response tokens."""
        return self.sampled["tokens"]

    def means(self) -> dict[str, float]:
        """The metrics: means over rollouts, over those that could be judged, and over groups."""
        kept = {} if self.kept is None else {f"kept/{name}": value for name, value in _means(self.kept).items()}
        groups = (self.sampled if self.kept is None else self.kept)["groups"]
        return _means(self.sampled) | {"groups": groups, "prompts_drawn": self.attempted} | kept


def count_rollouts(drawn: Drawn, world: World) -> RolloutCounts:
    """Count a step's rollouts over all processes."""
    kept = None if drawn.dropped is None else world.sum_values(_sums(drawn.groups))
    return RolloutCounts(world.sum_values(_sums(drawn.sampled)), kept, drawn.attempted)


def _sums(groups: Sequence[Group]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scored = [rollout for rollout in rollouts if rollout.verdict.scored]
    return {
        "groups": len(groups),
        "informative": sum(map(is_informative, groups)),
        "solved": sum(any(r.verdict.correct for r in group.rollouts) for group in groups),
        "rollouts": len(rollouts),
        "scored": len(scored),
        "reward": sum(rollout.reward for rollout in scored),
        "correct": sum(rollout.verdict.correct for rollout in scored),
        "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
    }


def _means(sums: Mapping[str, float]) -> dict[str, float]:
    per_rollout, per_group, judged = (max(1, sums[name]) for name in ("rollouts", "groups", "scored"))
    return {
        "reward": sums["reward"] / judged,
        "pass_rate": sums["correct"] / judged,
        "solved": sums["solved"] / per_group,
        "informative": sums["informative"] / per_group,
        "response_length": sums["tokens"] / per_rollout,
        "truncated": sums["truncated"] / per_rollout,
        "unscored": (sums["rollouts"] - sums["scored"]) / per_rollout,
    }


class Clock:
    """Seconds of each part of a step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[f"{name}_seconds"], self._last = now - self._last, now

    def rate(self, name: str, count: float) -> None:
        """Record `count` units per second, over the seconds of all laps so far."""
        self.laps[name] = count / max(1e-9, sum(self.laps.values()))


@dataclass(slots=True)
class Best:
    """The best of the measured steps, step 0 included; a function of metrics.jsonl alone.

    Greedy accuracy is highest where a policy has collapsed onto few solutions as often as where it has not. So steps
    whose value is within a tolerance of the highest count as equal, and among these pass@k decides.
    """

    metric: str
    within: float
    start: str
    """The model that training began with; it is the best until a step is better."""
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """What was measured at the best step."""
    _highest: float = -math.inf

    @classmethod
    def so_far(cls, run: Path, metric: str, within: float, start: str) -> "Best":
        """The best of the steps that a run has logged and still has checkpoints of."""
        there = {0, *steps_saved(run)}
        lines = read_metrics(run)
        best = cls(metric, within, start)._after(lines)
        if best.step is not None and best.step not in there:  # somebody deleted it
            best = cls(metric, within, start)._after([line for line in lines if line["step"] in there])
        return best

    def _after(self, lines: Sequence[Mapping[str, float]]) -> "Best":
        for line in lines:
            self.note(int(line["step"]), line)
        return self

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose checkpoints must be kept."""
        return (self.step,) if self.step else ()

    def check(self, values: Mapping[str, float]) -> None:
        """Raises UserError when the monitor does not measure the metric."""
        if self.metric and self.metric not in values:
            raise UserError(f"keep_best names {self.metric!r}, but the monitor measures: {', '.join(sorted(values))}")

    def note(self, step: int, values: Mapping[str, float]) -> bool:
        """Take a step's metrics into account; returns whether it is a training step and the best so far."""
        if not self.metric or self.metric not in values:
            return False
        self._highest = max(self._highest, values[self.metric])
        near = self._highest - self.within
        if values[self.metric] < near:
            return False
        if self.step is not None and self.values[self.metric] >= near and self._rank(values) <= self._rank(self.values):
            return False
        self.step, self.values = step, dict(values)
        return step > 0

    def _rank(self, values: Mapping[str, float]) -> list[float]:
        return [*(values[name] for name in deciding(values)), values[self.metric]]

    def write(self, run: Path) -> None:
        """Write checkpoints/best.json, once there is a best."""
        if self.step is not None:
            facts = {
                "step": self.step,
                "metric": self.metric,
                "value": self.values[self.metric],
                **{name: self.values[name] for name in deciding(self.values)},
                "model": f"{path_of(run, self.step).name}/model" if self.step else self.start,
            }
            write_atomically(run / "checkpoints" / "best.json", json.dumps(facts, indent=1) + "\n")


def deciding(values: Mapping[str, float]) -> list[str]:
    """What decides between steps of about the same accuracy: the name of pass@k at the largest k of which there are 2k
    samples, or else at k = 1; none without samples."""
    ks = sorted(int(name.removeprefix("eval/pass@")) for name in values if name.startswith("eval/pass@"))
    return [f"eval/pass@{max(k for k in ks if k == 1 or 2 * k <= ks[-1])}"] if ks else []


def pass_alarm(run: Path) -> PassAlarm:
    """The alarm about pass@k after the steps that a run has logged."""
    alarm = PassAlarm()
    for line in read_metrics(run):
        for name in deciding(line):
            alarm.note(int(line["step"]), name, line[name])
    return alarm


@dataclass(frozen=True, slots=True)
class Measured:
    """What the monitor finds at a step."""

    values: Mapping[str, float]
    """Metrics named eval/…"""
    high: float
    """The upper end of the 95 % interval of the pass@k that decides on the best step, over problems."""
    samples: Sequence[Sample]
    """The responses to keep."""


class Monitor:
    """Evaluation during training on a few held-out problems, spread over processes."""

    def __init__(
        self, config: MonitorConfig, evaluator: Evaluator, task: Task, world: World, *, shuffle: bool = False
    ) -> None:
        self._evaluator, self._task, self._world = evaluator, task, world
        self._every, self._kept = config.every, config.kept_responses
        self.problems: list[Problem] = []
        if config.every:
            self.problems = select(task, config.split, config.limit, shuffle=shuffle)

    def due(self, step: int) -> bool:
        """Whether a step is measured."""
        return self._every > 0 and step % self._every == 0

    def measure(self, step: int) -> Measured:
        """Answer the problems, from the same random keys at every step."""
        own = {self.problems[i].id: i for i in self._world.share(len(self.problems))}
        pairs, scored = self._world.together(lambda: self._score([self.problems[i] for i in own.values()]))
        every = [item for part in self._world.gather(scored) for item in part]
        n = self._evaluator.params.n
        values = {f"eval/{name}": value for name, value in metric_means(every, n).items()}
        values |= {f"eval/problems/{name}": float(count) for name, count in metric_counts(every, n).items()}
        bounds = [metric_interval(every, n, name.removeprefix("eval/")).high for name in deciding(values)]
        placed = [
            (own[group.problem.id], Sample.of(step, MONITOR, group.problem, first + i, rollout))
            for pair in pairs
            for first, group in zip((0, -1), pair, strict=True)
            if group is not None
            for i, rollout in enumerate(group.rollouts)
        ]
        return Measured(values, min(bounds, default=math.inf), self.pick(placed))

    def pick(self, placed: Sequence[tuple[int, Sample]]) -> list[Sample]:
        """The responses to keep, out of those of all processes with the places of their groups: the first of every
        group, then the second of every group, until there are enough."""

        def first(every: Sequence[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
            return sorted(every, key=lambda item: (item[1].sample, item[0]))[: self._kept]

        parts = self._world.gather(first(placed))
        return [sample for _, sample in first([item for part in parts for item in part])]

    def _score(self, problems: Sequence[Problem]) -> tuple[list[tuple[Group, Group | None]], list[Scored]]:
        pairs = self._evaluator.responses(problems, "monitor", quiet=True) if problems else []
        return pairs, [score_group(self._task, *pair) for pair in pairs]
