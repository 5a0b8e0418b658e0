"""Held-out problems during training: evaluation, the alarm about pass@k, the best checkpoint, certificates."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dph.build import make_task, select
from dph.config import MonitorConfig, TaskConfig
from dph.errors import RunError, SettingsError
from dph.evaluation.certification import CertificationSet, solved
from dph.evaluation.evaluator import Evaluator
from dph.measure.certificate import Certificate, Counts
from dph.measure.falls import ALPHA, FallAlarm
from dph.measure.metrics import Scores, metric_values, score_group
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.coverage import CERTIFICATE, MONITORED, drop_visits, read_visits, write_visits
from dph.runs.directory import read_metrics
from dph.runs.files import write_atomically
from dph.runs.samples import MONITOR, Sample
from dph.tasks import Task
from dph.training.checkpoints import path_of, steps_saved
from dph.types import Group, Problem


class PassAlarm:
    """Says that pass@k of the monitored problems has fallen (`FallAlarm`: at most 5 % of the runs in which it does not
    are told so, over all their steps and sets)."""

    def __init__(self, name: str, n: int, sets: int = 1) -> None:
        """name: of the set, before the metric. n: samples of a problem. sets: how many alarms share the error."""
        self._name, self._alarm, self._told = name, FallAlarm(n, ALPHA / sets), 0

    def note(self, step: int, counts: Counts) -> str | None:
        """Take a measured step into account; counts: the correct and the judged samples of each problem. A fall that
        shows again is told at its 1st, 2nd, 4th, 8th, … step."""
        fall = self._alarm.note(step, counts)
        self._told += fall is not None
        if fall is None or self._told.bit_count() != 1:  # a power of two
            return None
        before, after = (
            f"{value:.1%} at {f'step {first}' if first == last else f'steps {first} to {last}'}"
            for value, (first, last) in ((fall.before, fall.steps_before), (fall.after, fall.steps_after))
        )
        return (
            f"{self._name}pass@{fall.k} of the monitored problems has fallen from {before} to {after} (a run without a "
            "fall is told so with a probability of at most 5 %): the policy loses solutions that it had; a rehearsal "
            "set (preset dph_js), a larger loss.eta or a smaller optim.lr keeps more of them"
        )


@dataclass(frozen=True, slots=True)
class MonitoredSet:
    """Held-out problems that are measured together."""

    prefix: str
    """Of the names of their metrics: "eval/" or "monitor/NAME/"."""
    task: Task
    split: str
    problems: Sequence[Problem]
    n: int
    """Samples per problem."""
    alarm: PassAlarm


def monitored_sets(config: MonitorConfig, task: Task, *, shuffle: bool = False) -> list[MonitoredSet]:
    """The set of the training task, then the set of each table `monitor.sets`. Raises UserError as `make_task` and
    `select` do."""
    chosen = {"eval/": (task, config.split, config.limit, config.n)}
    for name, one in config.sets.items():
        its = make_task(TaskConfig(one.task, one.options)) if one.task else task
        chosen[f"monitor/{name}/"] = (its, one.split, one.limit, one.n)
    sets = []
    for prefix, (its, split, limit, n) in chosen.items():
        alarm = PassAlarm(prefix.removeprefix("eval/"), n, len(chosen))
        sets.append(MonitoredSet(prefix, its, split, select(its, split, limit, shuffle=shuffle), n, alarm))
    return sets


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of a step."""

    values: Mapping[str, float]
    """Metrics named eval/… and monitor/NAME/…"""
    samples: Sequence[Sample]
    """The responses to keep, of the training task."""
    warnings: Sequence[str]
    """The messages of the alarms about pass@k."""


class Monitor:
    """Evaluation during training on a few held-out problems, spread over processes."""

    def __init__(
        self,
        config: MonitorConfig,
        evaluator: Evaluator,
        sets: Sequence[MonitoredSet],
        world: World,
        run: Path,
        after: int,
    ) -> None:
        """run: run directory, whose monitor.jsonl gets a line for each measured step. after: the last step whose
        measurement counts, of a resumed run; -1 for a new one."""
        self._evaluator, self._sets, self._world, self._run = evaluator, sets, world, run
        self._every, self._kept = config.every, config.kept_responses
        for step, visits in read_visits(run, MONITORED).items():
            if step <= after:
                self._alarms(step, {id: (correct, judged) for id, correct, judged in visits})
        if world.leads:
            drop_visits(run, after, MONITORED)

    def _alarms(self, step: int, counts: Counts) -> list[str]:
        """What the alarms say of a step; counts: of all sets, by the ids that monitor.jsonl has."""
        said = [
            one.alarm.note(step, {p.id: counts[name] for p in one.problems if (name := self._id(one, p)) in counts})
            for one in self._sets
        ]
        return [message for message in said if message]

    def _id(self, one: MonitoredSet, problem: Problem) -> str:
        """A problem's id in monitor.jsonl: the sets beyond the first may have the same problems."""
        return problem.id if one is self._sets[0] else one.prefix + problem.id

    @property
    def problems(self) -> list[Problem]:
        """All problems; an id of another task begins with its set's prefix: the training task may have that id too."""
        return [
            problem if one.task is self._sets[0].task else replace(problem, id=one.prefix + problem.id)
            for one in self._sets
            for problem in one.problems
        ]

    def due(self, step: int) -> bool:
        """Whether a step is measured."""
        return self._every > 0 and step % self._every == 0

    def measure(self, step: int) -> Measured:
        """Answer the problems of every set, from the same random keys at every step."""
        every = [self._measure(step, one) for one in self._sets]
        values = {name: value for of_set, _, _ in every for name, value in of_set.items()}
        counts = {id: each for _, of_set, _ in every for id, each in of_set.items()}
        if self._world.leads:
            write_visits(self._run, step, [(id, *each) for id, each in counts.items()], MONITORED)
        return Measured(values, every[0][2], self._alarms(step, counts))

    def _measure(self, step: int, one: MonitoredSet) -> tuple[dict[str, float], Counts, list[Sample]]:
        """Of one set: its metrics, the correct and the judged samples of each problem, and the responses to keep."""
        places = {one.problems[i].id: i for i in self._world.share(len(one.problems))}
        pairs, scored = self._world.together(lambda: self._score(one, [one.problems[i] for i in places.values()]))
        parts = self._world.gather(list(zip(places, scored, strict=True)))
        by_id = {id: item for part in parts for id, item in part}
        every = list(by_id.values())
        measured = {one.prefix + name: of_problems for name, of_problems in metric_values(every, one.n).items()}
        counts = {name.replace(one.prefix, f"{one.prefix}problems/"): len(some) for name, some in measured.items()}
        values = {name: float(of_problems.mean()) for name, of_problems in measured.items()}
        values |= {name: float(count) for name, count in counts.items() if count < len(every)}
        counts = {
            self._id(one, problem): (by_id[problem.id]["correct"], by_id[problem.id]["samples"])
            for problem in one.problems
        }
        placed = [
            (places[group.problem.id], Sample.of(step, MONITOR, group.problem, first + i, rollout))
            for pair in pairs
            for first, group in zip((0, -1), pair, strict=True)
            if group is not None
            for i, rollout in enumerate(group.rollouts)
        ]
        return values, counts, self.pick(placed)

    def pick(self, placed: Sequence[tuple[int, Sample]]) -> list[Sample]:
        """The responses to keep, out of all processes' responses with the places of their groups: the first of every
        group, then the second of every group, until there are enough."""

        def first(every: Sequence[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
            return sorted(every, key=lambda item: (item[1].sample, item[0]))[: self._kept]

        parts = self._world.gather(first(placed))
        return [sample for _, sample in first([item for samples in parts for item in samples])]

    def _score(
        self, one: MonitoredSet, problems: Sequence[Problem]
    ) -> tuple[list[tuple[Group, Group | None]], list[Scores]]:
        evaluator = replace(self._evaluator, params=replace(self._evaluator.params, n=one.n))
        pairs = evaluator.responses(problems) if problems else []
        return pairs, [score_group(one.task, *pair) for pair in pairs]


@dataclass(slots=True)
class Best:
    """The best of the measured steps, step 0 included; a function of metrics.jsonl alone. Greedy accuracy may be
    highest after a policy has collapsed onto few solutions: steps within a tolerance of it are equal, and pass@k
    decides."""

    metric: str
    within: float
    start: str
    """The model that training began with; it is the best until a step is better."""
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the best step."""
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
            raise SettingsError(f"keep_best is {self.metric!r}, but the monitor measures: {', '.join(sorted(values))}")

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


def deciding(values: Mapping[str, float], prefix: str = "eval/") -> list[str]:
    """The metric that decides between steps of about the same accuracy: the name of pass@k at the largest k of which
    there are 2k samples, or else at k = 1; none without samples. prefix: of the names of a set's metrics."""
    of_passes = f"{prefix}pass@"
    ks = sorted(int(name.removeprefix(of_passes)) for name in values if name.startswith(of_passes))
    return [f"{of_passes}{max(k for k in ks if k == 1 or 2 * k <= ks[-1])}"] if ks else []


class Certifier:
    """Certificates of checkpoints, in their order, until one fails; the last certified model is kept. Its state is
    certificate.jsonl. Its findings may only end training: a run that rolled back would depend on the set."""

    def __init__(
        self,
        run: Path,
        held: CertificationSet,
        evaluator: Evaluator,
        world: World,
        save: Callable[[Path, str], None],
        after: int,
        *,
        every: int,
        stop: bool,
    ) -> None:
        """save: writes the current model into a folder, with a note in its card. after: the last step whose check
        counts, of a resumed run; -1 for a new one. every: steps between checks. stop: training ends after the first
        check that fails."""
        self.certified = self.failed = 0
        """The last certified step, and the first that failed; 0 if there is none."""
        self._every, self._stop = every, stop
        self._run, self._held, self._evaluator, self._world, self._save = run, held, evaluator, world, save
        visits = read_visits(run, CERTIFICATE).items()
        seen = {step: {id: (c, n) for id, c, n in every} for step, every in visits if step <= after}
        if world.leads:
            drop_visits(run, after, CERTIFICATE)
        if world.leads and not seen:
            write_visits(run, 0, [(id, *each) for id, each in held.base.items()], CERTIFICATE)
        if seen.pop(0, held.base) != held.base:
            raise RunError(f"{held.run.path} is not the certification set that {run} was started with; restore it")
        for step, counts in seen.items():
            self._note(step, held.certificate(counts))

    @property
    def ended(self) -> bool:
        """Whether training is to end."""
        return self._stop and self.failed > 0

    def due(self, step: int) -> bool:
        """Whether the checkpoint after a step is checked."""
        return step > 0 and step % self._every == 0

    def check(self, step: int) -> dict[str, float]:
        """Check the current policy; returns the metrics certify/… (docs/reference/metrics.md)."""
        share = [self._held.problems[i] for i in self._world.share(len(self._held.problems))]
        parts = self._world.gather(self._world.together(lambda: solved(self._evaluator, share)))
        known = {id: each for part in parts for id, each in part.items()}
        counts = {problem.id: known[problem.id] for problem in self._held.problems}  # in one process's order
        certificate = self._held.certificate(counts)
        self._note(step, certificate)
        self._world.decided(lambda: self._write(step, certificate, counts))
        numbers = {name: getattr(certificate, name) for name in ("loss", "bound", "epsilon")}
        numbers |= {"lost": len(certificate.lost), "certified": self.certified == step}
        return {f"certify/{name}": float(value) for name, value in numbers.items()}

    def _note(self, step: int, certificate: Certificate) -> None:
        if certificate.certified and not self.failed:
            self.certified = step
        self.failed = self.failed or (0 if certificate.certified else step)

    def _write(self, step: int, certificate: Certificate, counts: Counts) -> None:
        write_visits(self._run, step, [(id, *each) for id, each in counts.items()], CERTIFICATE)
        late = "" if self.failed in (0, step) else f"; nothing is certified after the failure at step {self.failed}"
        say(f"step {step}: {certificate.sentence()}{late}")
        if self.certified == step:
            self._save(self._run / "certified", f"After step {step}, {certificate.sentence()}.")
