"""The finished runs of a grid, and metrics over seeds and problems from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dph.errors import UserError
from dph.measure.intervals import difference_over_runs
from dph.report.comparison import mean_of
from dph.report.data import EvalRun, MetricValue, TrainRun, aligned_rows, range_of, read_eval, values_of
from dph.runs.directory import read_metrics
from experiments.grid import Arm, Base
from experiments.plan import Choice, RunPaths

DOMAINS = IN_DOMAIN, CROSS_DOMAIN, OUT_OF_DOMAIN = "in-domain", "cross-domain", "out-of-domain"
"""The paper's BIRD, Spider and math test sets; a grid names the splits of its world that stand for them."""

Counts = Mapping[str, Mapping[int, EvalRun]]
"""Evaluations by the name of an arm, a base model or its second evaluation, and by seed (0 for a base model)."""
INTERVALS = "95 % intervals over training seeds and problems; with one seed, and for the base model, over problems only"
"""What the intervals of a mean cover, for below a table or figure."""
DIFFERENCES = (
    "95 % intervals over training seeds and problems, with the problems paired; an arm with one seed counts as that "
    "very model"
)
"""What the intervals of a difference cover."""


@dataclass(frozen=True, slots=True)
class Results:
    """The finished runs of a grid; arms and bases without a finished evaluation are absent."""

    choice: Choice
    bases: Mapping[str, EvalRun]
    again: Mapping[str, EvalRun]
    """A second evaluation of each base model, with other samples."""
    arms: Mapping[str, Sequence[EvalRun]]
    """Evaluations by arm, one per training seed."""
    seeds: Mapping[str, Sequence[int]]
    """The training seed of each of these evaluations."""
    trained: Mapping[str, Sequence[TrainRun]]
    timings: Mapping[str, Sequence[Mapping[str, float]]]
    """Lines of timings.jsonl by arm, all seeds together."""

    def split(self, domain: str) -> str:
        """The name of a domain's split in this grid's world; "" where it was not evaluated."""
        name = self.choice.grid.domains.get(domain, "")
        return name if all(name in run.splits for run in self.bases.values()) else ""

    @property
    def first_base(self) -> Base | None:
        """The first base model that was evaluated: figures and page show it and what was trained from it."""
        return next((base for base in self.choice.bases() if base.name in self.bases), None)

    def arm(self, name: str) -> Arm:
        return self.choice.grid.arms[name]

    def of_base(self, base: str, *, variants: bool = False) -> dict[str, Sequence[EvalRun]]:
        """Evaluations by arm, of the arms trained from one base model. `variants` adds the arms that vary another one
        (sweeps, options, other budgets); they are too many for the tables and figures of the methods."""
        return {
            name: runs
            for name, runs in self.arms.items()
            if self.arm(name).base == base and (variants or not self.arm(name).variant_of)
        }


def read_results(choice: Choice, paths: RunPaths, counts: Counts | None = None) -> Results:
    """All finished runs of a choice, and for runs that are absent their counts as far as they are given."""

    arms: dict[str, Sequence[EvalRun]] = {}
    numbers: dict[str, Sequence[int]] = {}
    trained: dict[str, Sequence[TrainRun]] = {}
    timings: dict[str, Sequence[Mapping[str, float]]] = {}
    for name, seeds in choice.arms.items():
        arm = choice.grid.arms[name]
        runs: dict[int, EvalRun] = {}
        for seed in seeds:
            runs |= _finished(paths.evaluation(name, seed), counts, name, seed)
        folders = [paths.training(arm, seed) for seed in seeds if (paths.training(arm, seed) / "model").exists()]
        if runs:
            arms[name], numbers[name] = list(runs.values()), list(runs)
            trained[name] = [TrainRun(folder, arm.label, read_metrics(folder)) for folder in folders]
            timings[name] = [row for folder in folders for row in read_metrics(folder, "timings.jsonl")]
    bases = read_bases(choice, paths, counts)
    again = {
        base.name: run
        for base in choice.bases()
        for run in _finished(paths.again(base), counts, f"{base.name}-again").values()
    }
    return Results(choice, bases, again, arms, numbers, trained, timings)


def read_bases(choice: Choice, paths: RunPaths, counts: Counts | None = None) -> dict[str, EvalRun]:
    """The evaluations of a choice's base models, as far as there are any."""
    return {
        base.name: run
        for base in choice.bases()
        for run in _finished(paths.evaluation(base.name), counts, base.name).values()
    }


def _finished(path: Path, counts: Counts | None, name: str, seed: int = 0) -> dict[int, EvalRun]:
    """An evaluation by its seed: the run itself or, if it is absent, its counts; empty without either."""
    if (path / "scores.json").exists():
        return {seed: read_eval(path)}
    known = (counts or {}).get(name, {})
    return {seed: known[seed]} if seed in known else {}


def values(runs: Sequence[EvalRun], split: str, metric: str) -> np.ndarray:
    """A metric of every problem in every run, [seeds, problems]: "greedy", "pass@k", "mean", "styles",
    "styles_correct" or a measure of diversity; NaN where it could not be measured.

    Raises UserError when the runs were evaluated on different problems.
    """
    return values_of(aligned_rows(runs, split), metric)


def mean_value(runs: Sequence[EvalRun], split: str, metric: str) -> MetricValue:
    """Mean over seeds and problems with its interval over both, or over problems alone with one seed."""
    return mean_of(values(runs, split, metric), metric)


def difference(runs: Sequence[EvalRun], others: Sequence[EvalRun], split: str, metric: str) -> MetricValue:
    """Mean of one method minus the mean of another on the same problems, with its interval."""
    aligned_rows([*runs, *others], split)
    left, right = values(runs, split, metric), values(others, split, metric)
    both = ~np.isnan(np.concatenate([left, right])).any(0)
    if not both.any():
        return MetricValue(math.nan)
    interval = difference_over_runs(left[:, both], right[:, both], range_of(metric))
    return MetricValue(interval.estimate, interval.low, interval.high, int(both.sum()), both.size)


def check_finished(failures: Sequence[str]) -> None:
    """Raises UserError if `dph.process.jobs.run_jobs` named jobs that failed."""
    if failures:
        raise UserError(f"{len(failures)} jobs failed; the same command tries them again. The first: {failures[0]}")
