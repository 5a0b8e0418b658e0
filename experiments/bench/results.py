"""What the runs of the bench say: points of settings in worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dph.report.data import EvalRun
from experiments.bench.choose import Point
from experiments.bench.design import Bench, Setting, arm_of, base_of
from experiments.bench.merit import Place
from experiments.finished import IN_DOMAIN, Results, values

Frontiers = Mapping[int, Sequence[Place]]
"""Points (accuracy, coverage) by world."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The runs of some settings in some worlds."""

    results: Results
    settings: Sequence[Setting]
    worlds: Sequence[int]

    @property
    def split(self) -> str:
        return self.results.choice.grid.domains[IN_DOMAIN]

    def runs(self, setting: Setting, world: int) -> Sequence[EvalRun]:
        """Evaluations of a setting in a world, one for each finished seed."""
        return self.results.arms.get(arm_of(setting, world), ())

    def seen(self, setting: Setting) -> list[int]:
        """The worlds in which a setting has been evaluated."""
        return [world for world in self.worlds if self.runs(setting, world)]

    def seeds(self, setting: Setting, world: int) -> Sequence[int]:
        """The training seeds of these evaluations."""
        return self.results.seeds.get(arm_of(setting, world), ())

    def of_seed(self, seed: int) -> "Phase":
        """The runs with one training seed."""
        kept: dict[str, list[EvalRun]] = {}
        for name, runs in self.results.arms.items():
            pairs = zip(self.results.seeds[name], runs, strict=True)
            if own := [run for each, run in pairs if each == seed]:
                kept[name] = own
        return replace(self, results=replace(self.results, arms=kept, seeds=dict.fromkeys(kept, (seed,))))

    def table(self, setting: Setting, metric: str, like: Sequence[Setting] = ()) -> dict[int, np.ndarray]:
        """Values [seeds, problems] of a metric by world; problems without a value are left out.

        like: only the training seeds that each of these settings has in that world too; a world without one is left
        out. Runs of one seed in one world begin from the same model.
        """
        found: dict[int, np.ndarray] = {}
        for world in self.seen(setting):
            shared = set.intersection(*(set(self.seeds(one, world)) for one in (setting, *like)))
            pairs = zip(self.seeds(setting, world), self.runs(setting, world), strict=True)
            if runs := [run for seed, run in pairs if seed in shared]:
                array = values(runs, self.split, metric)
                found[world] = array[:, ~np.isnan(array).any(0)]
        return found

    def means(self, setting: Setting, metric: str, like: Sequence[Setting] = ()) -> dict[int, float]:
        """Mean of a metric over seeds and problems, by world; `like` as above."""
        return {world: float(array.mean()) for world, array in self.table(setting, metric, like).items() if array.size}

    def base_means(self, metric: str) -> dict[int, float]:
        """The same of each world's base model."""
        runs = {world: self.results.bases.get(base_of(world)) for world in self.worlds}
        found = {world: values([run], self.split, metric) for world, run in runs.items() if run is not None}
        return {world: float(np.nanmean(array)) for world, array in found.items() if not np.isnan(array).all()}


def evaluated(bench: Bench, phase: Phase) -> dict[str, list[Setting]]:
    """The methods that were run in a phase, each with its settings that were."""
    found = {method: [s for s in settings if phase.seen(s)] for method, settings in bench.methods.items()}
    return {method: settings for method, settings in found.items() if settings}


def differences(phase: Phase, setting: Setting, other: Setting, metric: str) -> list[float]:
    """A setting's means minus another's, in the worlds that both were run in, over the training seeds of both there."""
    left, right = phase.means(setting, metric, [other]), phase.means(other, metric, [setting])
    return [left[world] - right[world] for world in sorted(left.keys() & right.keys())]


def frontier(
    phase: Phase, settings: Sequence[Setting], accuracy: str, coverage: str, others: Sequence[Setting] = ()
) -> Frontiers:
    """The points of a method's settings by world, in the worlds where all of them were run, over the training seeds
    that all of them have there, and `others`, with which they are compared, have too."""
    like = [*settings, *others]
    found = [(phase.means(setting, accuracy, like), phase.means(setting, coverage, like)) for setting in settings]
    worlds = set.intersection(*({*one} & {*other} for one, other in found))
    return {world: [(one[world], other[world]) for one, other in found] for world in worlds}


def development_points(bench: Bench, phases: Sequence[Phase]) -> dict[str, dict[str, Point]]:
    """Each setting's means over the worlds of all phases; settings that were not run in all of them are left out."""
    metrics = ("greedy", "mean", f"pass@{bench.rule.k}")
    points: dict[str, dict[str, Point]] = {}
    for method, settings in bench.methods.items():
        for setting in settings:
            parts = [[phase.means(setting, metric) for metric in metrics] for phase in phases]
            if all(by_world for part in parts for by_world in part):
                by_metric = zip(*parts, strict=True)
                found = [float(np.mean([v for by_world in one for v in by_world.values()])) for one in by_metric]
                points.setdefault(method, {})[setting.name] = Point(*found)
    return points


def by_name(bench: Bench) -> Mapping[str, Setting]:
    """All settings by name."""
    return {setting.name: setting for settings in bench.methods.values() for setting in settings}
