"""Held-out problems during training: how they are evaluated, and the alarm that says that pass@k has fallen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dph.build import make_task, select
from dph.config import MonitorConfig, TaskConfig
from dph.evaluation.evaluator import Evaluator
from dph.measure.certificate import Counts
from dph.measure.falls import ALPHA, FallAlarm
from dph.measure.metrics import Scores, metric_values, score_group
from dph.process.distributed import World
from dph.runs.coverage import MONITORED, drop_visits, read_visits, write_visits
from dph.runs.samples import MONITOR, Sample
from dph.tasks import Task
from dph.types import Group, Problem


class PassAlarm:
    """Says that pass@k of the monitored problems has fallen.

    Of the runs in which pass@k does not fall, at most 5 % are told so, over all steps and sets of a run (see
    `FallAlarm`).
    """

    def __init__(self, name: str, n: int, sets: int = 1) -> None:
        """name: of the set, written before the name of the metric. n: the number of samples of a problem. sets: the
        number of alarms of the run, which share the probability of a false alarm."""
        self._name, self._alarm, self._told = name, FallAlarm(n, ALPHA / sets), 0

    def note(self, step: int, counts: Counts) -> str | None:
        """Take a measured step into account. Returns the message of the alarm, or None. A fall that shows in several
        steps is told at its 1st, 2nd, 4th, 8th, … step.

        counts: the numbers of correct and of judged samples of each problem.
        """
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
    """The beginning of the names of the metrics of the set: "eval/" or "monitor/NAME/"."""
    task: Task
    split: str
    problems: Sequence[Problem]
    n: int
    """Samples per problem."""
    alarm: PassAlarm


def monitored_sets(config: MonitorConfig, task: Task, *, shuffle: bool = False) -> list[MonitoredSet]:
    """The monitored set of the training task, and then the set of each table `monitor.sets`. Raises UserError as
    `make_task` and `select` do."""
    chosen = {"eval/": (task, config.split, config.limit, config.n)}
    for name, table in config.sets.items():
        of_set = make_task(TaskConfig(table.task, table.options)) if table.task else task
        chosen[f"monitor/{name}/"] = (of_set, table.split, table.limit, table.n)
    sets = []
    for prefix, (of_set, split, limit, n) in chosen.items():
        alarm = PassAlarm(prefix.removeprefix("eval/"), n, len(chosen))
        sets.append(MonitoredSet(prefix, of_set, split, select(of_set, split, limit, shuffle=shuffle), n, alarm))
    return sets


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurement of a step."""

    values: Mapping[str, float]
    """Metrics named eval/… and monitor/NAME/…"""
    samples: Sequence[Sample]
    """The responses to keep. They are responses to problems of the training task."""
    warnings: Sequence[str]
    """The messages of the alarms about pass@k."""


class Monitor:
    """Evaluation during training on a few held-out problems, which are spread over the processes."""

    def __init__(
        self,
        config: MonitorConfig,
        evaluator: Evaluator,
        sets: Sequence[MonitoredSet],
        world: World,
        run: Path,
        after: int,
    ) -> None:
        """run: the run directory, whose monitor.jsonl gets a line for each measured step. after: in a resumed run, the
        last step whose measurement counts; -1 in a new run."""
        self._evaluator, self._sets, self._world, self._run = evaluator, sets, world, run
        self._every, self._kept = config.every, config.kept_responses
        for step, visits in read_visits(run, MONITORED).items():
            if step <= after:
                self._alarms(step, {id: (correct, judged) for id, correct, judged in visits})
        if world.leads:
            drop_visits(run, after, MONITORED)

    def _alarms(self, step: int, counts: Counts) -> list[str]:
        """The messages of the alarms about a step. counts: of the problems of all sets, by the ids in monitor.jsonl."""
        messages = []
        for group in self._sets:
            ids = {problem.id: self._id(group, problem) for problem in group.problems}
            of_set = {id: counts[name] for id, name in ids.items() if name in counts}
            messages.append(group.alarm.note(step, of_set))
        return [message for message in messages if message]

    def _id(self, group: MonitoredSet, problem: Problem) -> str:
        """The id of a problem in monitor.jsonl. The ids of all sets but the first begin with the prefix of the set,
        because two sets may have the same problems."""
        return problem.id if group is self._sets[0] else group.prefix + problem.id

    @property
    def problems(self) -> list[Problem]:
        """All monitored problems. The id of a problem of another task begins with the prefix of its set, because the
        training task may have the same id."""
        return [
            problem if group.task is self._sets[0].task else replace(problem, id=group.prefix + problem.id)
            for group in self._sets
            for problem in group.problems
        ]

    def due(self, step: int) -> bool:
        """Whether a step is measured."""
        return self._every > 0 and step % self._every == 0

    def measure(self, step: int) -> Measured:
        """Answer the problems of every set. The random keys are the same at every step."""
        measured = [self._measure(step, group) for group in self._sets]
        values = {name: value for metrics, _, _ in measured for name, value in metrics.items()}
        counts = {id: count for _, of_set, _ in measured for id, count in of_set.items()}
        if self._world.leads:
            write_visits(self._run, step, [(id, *count) for id, count in counts.items()], MONITORED)
        return Measured(values, measured[0][2], self._alarms(step, counts))

    def _measure(self, step: int, group: MonitoredSet) -> tuple[dict[str, float], Counts, list[Sample]]:
        """The metrics of a set, the numbers of correct and of judged samples of each problem, and the responses to
        keep."""
        prefix, problems = group.prefix, group.problems
        places = {problems[i].id: i for i in self._world.share(len(problems))}
        pairs, scored = self._world.together(lambda: self._score(group, [problems[i] for i in places.values()]))
        parts = self._world.gather(list(zip(places, scored, strict=True)))
        by_id = {id: scores for part in parts for id, scores in part}
        # the values of a metric, one for each problem that has it
        metrics = {prefix + name: values for name, values in metric_values(list(by_id.values()), group.n).items()}
        means = {name: float(values.mean()) for name, values in metrics.items()}
        sizes = {name.replace(prefix, f"{prefix}problems/"): len(values) for name, values in metrics.items()}
        means |= {name: float(size) for name, size in sizes.items() if size < len(by_id)}
        counts = {
            self._id(group, problem): (by_id[problem.id]["correct"], by_id[problem.id]["samples"])
            for problem in problems
        }
        placed = [
            (places[drawn.problem.id], Sample.of(step, MONITOR, drawn.problem, first + i, rollout))
            for pair in pairs
            for first, drawn in zip((0, -1), pair, strict=True)
            if drawn is not None
            for i, rollout in enumerate(drawn.rollouts)
        ]
        return means, counts, self.pick(placed)

    def pick(self, placed: Sequence[tuple[int, Sample]]) -> list[Sample]:
        """The responses to keep, out of the responses of all processes: the first response of every group, then the
        second response of every group, until there are enough.

        placed: the responses of this process, each with the place of its group.
        """

        def first(samples: Sequence[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
            return sorted(samples, key=lambda pair: (pair[1].sample, pair[0]))[: self._kept]

        parts = self._world.gather(first(placed))
        return [sample for _, sample in first([pair for samples in parts for pair in samples])]

    def _score(
        self, group: MonitoredSet, problems: Sequence[Problem]
    ) -> tuple[list[tuple[Group, Group | None]], list[Scores]]:
        """The sampled and the greedy responses to problems of a set, and the scores of each problem."""
        evaluator = replace(self._evaluator, params=replace(self._evaluator.params, n=group.n))
        pairs = evaluator.responses(problems) if problems else []
        return pairs, [score_group(group.task, *pair) for pair in pairs]
