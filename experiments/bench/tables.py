"""The bench's tables: the chosen settings in the test worlds, figures of merit, everything tried, where variance is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dph.report.data import MetricValue, range_of
from dph.report.tables import Cell, ReportTable, cell
from experiments.bench.choose import ROLES
from experiments.bench.design import Bench, Setting, with_steps
from experiments.bench.merit import Components, attained, components, hypervolume, over_worlds
from experiments.bench.results import Frontiers, Phase, by_name, differences, evaluated, frontier
from experiments.tables import signed_cell

Frozen = Mapping[str, Mapping[str, str]]

_WORLDS = "95 % intervals over worlds (Student's t over their means); differences are paired by world and training seed"


def chosen_settings(bench: Bench, frozen: Frozen) -> list[Setting]:
    """The settings of the test: all roles of each method, once where they are the same, each followed by the same at
    equal rollouts if it samples more of them than others."""
    known, steps = by_name(bench), bench.equal_rollouts
    names = dict.fromkeys(frozen[method][role] for method in bench.methods if method in frozen for role in ROLES)
    found = [known[name] for name in names if name in known]
    return [each for one in found for each in (one, *([with_steps(one, steps[one.name])] if one.name in steps else []))]


def chosen_table(bench: Bench, test: Phase) -> ReportTable | None:
    """Greedy accuracy, mean@n, pass@k, votes and styles of each chosen setting, over the test worlds; None before any
    was run."""
    if not any(map(test.seen, test.settings)):
        return None
    coverage = f"pass@{bench.rule.k}"
    metrics = {
        "greedy": "greedy",
        "mean": "mean@n",
        coverage: coverage,
        "maj@32": "maj@32",
        "styles_correct": "styles (correct)",
    }
    bases = [_level(metric, test.base_means(metric)) for metric in metrics]
    rows = [[Cell("base models"), *bases, Cell("–")]]
    for setting in test.settings:
        if worlds := test.seen(setting):
            found = [_level(metric, test.means(setting, metric)) for metric in metrics]
            rows.append([Cell(setting.label), *found, Cell(str(len(worlds)))])
    return ReportTable(
        "The chosen settings in the test worlds", ["", *metrics.values(), "worlds"], rows, f"Percent. {_WORLDS}."
    )


def _level(metric: str, by_world: Mapping[int, float]) -> Cell:
    """The mean over worlds with its interval, as far as it lies in the metric's range."""
    value, (lowest, highest) = over_worlds([*by_world.values()]), range_of(metric)
    return cell(metric, MetricValue(value.mean, max(value.low, lowest), min(value.high, highest)))


def gaps_table(bench: Bench, test: Phase, method: str) -> ReportTable | None:
    """Each chosen setting against those of one method, in the worlds that both were run in and with the training seeds
    that both have there; None before that method was run."""
    coverage = f"pass@{bench.rule.k}"
    metrics = {"greedy": "greedy", "mean": "mean@n", coverage: coverage}
    targets = [s for s in test.settings if s.method == method and test.seen(s)]
    if not targets:
        return None

    rows = [
        [
            Cell(setting.label),
            *(
                Cell("–") if setting == other else _points(differences(test, setting, other, metric), 100, 1)
                for other in targets
                for metric in metrics
            ),
        ]
        for setting in test.settings
        if test.seen(setting)
    ]
    columns = [f"{title} − {other.label}" for other in targets for title in metrics.values()]
    note = f"Percentage points. {_WORLDS}."
    return ReportTable(f"Differences to the settings of {bench.label(method)}", ["", *columns], rows, note)


def merit_table(bench: Bench, test: Phase) -> ReportTable | None:
    """Each method's frontier in the test worlds against that of the target method; None before that was run."""
    rule, coverage = bench.rule, f"pass@{bench.rule.k}"
    if not any(map(test.seen, bench.methods[rule.target])):
        return None
    rows = []
    for method in evaluated(bench, test):
        found, target = _pair(bench, test, method, rule.target, "greedy")
        worlds = sorted(found.keys() & target.keys())
        volume = float(np.mean([hypervolume(found[world], bench.rule.corner) for world in worlds]))
        gained = _gains(bench, found, target)
        reached, farther = _near(found, target, rule.far)
        sampled = _pair(bench, test, method, rule.target, "mean")
        at_samples = _gains(bench, *sampled)
        _, at_mean = _near(*sampled, rule.far)
        compared = method != rule.target
        rows.append(
            [
                Cell(bench.label(method)),
                Cell(f"{1e4 * volume:.0f}"),
                _points(gained, 1e4, 0) if compared else Cell("–"),
                _points(at_samples, 1e4, 0) if compared else Cell("–"),
                _points_of(farther) if compared else Cell("–"),
                _points_of(at_mean) if compared else Cell("–"),
                Cell(f"{reached}/{len(worlds)}"),
                Cell(f"{sum(value > 0 for value in gained)}/{len(worlds)}" if compared else "–"),
            ]
        )
    columns = [
        "",
        "hypervolume",
        "gain in hypervolume",
        f"the same of mean@n and {coverage}",
        f"gain in {coverage} near the target's greedy accuracy",
        f"gain in {coverage} near its mean@n",
        "worlds that reach its greedy accuracy",
        "worlds with a gain",
    ]
    accuracy, least = (100 * share for share in rule.corner)
    note = (
        f"Hypervolume of (greedy, {coverage}) above {accuracy:.0f} %, {least:.0f} % in squared points; near: at most "
        f"{100 * rule.far:.0f} points below {bench.label(rule.target)}. {_WORLDS}."
    )
    return ReportTable(f"Frontiers against tuned {bench.label(rule.target)}", columns, rows, note)


def attempts_table(bench: Bench, test: Phase) -> ReportTable | None:
    """Each attempt to go past the frontier against the methods that it changes; None before any of them was run."""
    rows, known = [], evaluated(bench, test)
    for method, others in bench.against.items():
        for other in (name for name in others if method in known and name in known):
            pairs = [_pair(bench, test, method, other, accuracy) for accuracy in ("greedy", "mean")]
            gained = [_gains(bench, *pair) for pair in pairs]
            farther = [_near(*pair, bench.rule.far)[1] for pair in pairs]
            clear = [bool(over_worlds(found).low > 0) for found in gained]
            rows.append(
                [
                    Cell(bench.label(method)),
                    Cell(bench.label(other)),
                    *(_points(found, 1e4, 0) for found in gained),
                    *map(_points_of, farther),
                    Cell("yes" if any(clear) else "no"),
                ]
            )
    if not rows:
        return None
    coverage = f"pass@{bench.rule.k}"
    columns = [
        "against",
        f"gain in hypervolume (greedy, {coverage})",
        f"the same of mean@n and {coverage}",
        f"gain in {coverage} near its greedy accuracy",
        f"gain in {coverage} near its mean@n",
        "moves the frontier",
    ]
    note = f"Moves the frontier: a gain in hypervolume whose interval is above 0. {_WORLDS}."
    return ReportTable("Attempts to go past the frontier", ["", *columns], rows, note)


def _pair(bench: Bench, test: Phase, method: str, other: str, accuracy: str) -> tuple[Frontiers, Frontiers]:
    """The frontiers of two methods, in accuracy and pass@k, over the training seeds that both have in a world."""
    known = evaluated(bench, test)
    one, two = known[method], known[other]
    coverage = f"pass@{bench.rule.k}"
    return frontier(test, one, accuracy, coverage, two), frontier(test, two, accuracy, coverage, one)


def _gains(bench: Bench, found: Frontiers, other: Frontiers) -> list[float]:
    """Differences in hypervolume, in the worlds that both were run in."""
    corner, worlds = bench.rule.corner, sorted(found.keys() & other.keys())
    return [hypervolume(found[world], corner) - hypervolume(other[world], corner) for world in worlds]


def _near(found: Frontiers, target: Frontiers, far: float) -> tuple[int, list[float]]:
    """In how many worlds a method comes within `far` of the target's highest accuracy, and by how much its coverage
    there exceeds the target's; NaN in the other worlds."""
    gains = []
    for world in sorted(found.keys() & target.keys()):
        goal = max(x for x, _ in target[world]) - far
        gains.append(attained(found[world], goal) - attained(target[world], goal))
    return sum(not math.isnan(gain) for gain in gains), gains


def _points(differences: Sequence[float], scale: float, digits: int) -> Cell:
    return signed_cell(over_worlds(differences), scale, digits)


def _points_of(differences: Sequence[float]) -> Cell:
    """Percentage points of a difference that not every world has; where some lack it, with the number that have it."""
    found = _points(differences, 100, 1)
    known = sum(not math.isnan(value) for value in differences)
    few = "" if known == len(differences) else f"; {known} of {len(differences)} worlds"
    return replace(found, interval=found.interval + few)


def tried_table(bench: Bench, development: Sequence[Phase], frozen: Frozen) -> ReportTable:
    """Every setting that was tried in the development worlds so far, and what was chosen."""
    coverage, rows = f"pass@{bench.rule.k}", []
    worlds = [world for phase in development for world in phase.worlds]
    for method, settings in bench.methods.items():
        for setting in settings:
            if not any(phase.seen(setting) for phase in development):
                continue
            row = [Cell(setting.label)]
            for phase in development:
                for world in phase.worlds:
                    for metric in ("greedy", "mean", coverage):
                        found = phase.means(setting, metric).get(world)
                        row.append(cell(metric, None if found is None else MetricValue(found)))
            roles = [role for role in ROLES if frozen.get(method, {}).get(role) == setting.name]
            rows.append([*row, Cell(", ".join(roles) or "–")])
    columns = [f"world {world}: {metric}" for world in worlds for metric in ("greedy", "mean@n", coverage)]
    return ReportTable(
        "Every setting that was tried in the development worlds", ["", *columns, "chosen as"], rows, "Percent."
    )


def seeds_table(bench: Bench, test: Phase, target: str) -> ReportTable | None:
    """Each training seed by itself: the settings that have several, against one of them; None without several."""
    metrics = {"mean": "mean@n", f"pass@{bench.rule.k}": f"pass@{bench.rule.k}"}
    several = [s for s in test.settings if any(len(test.seeds(s, world)) > 1 for world in test.worlds)]
    reference = next((s for s in several if s.name == target), None)
    if reference is None:
        return None
    seeds = sorted({seed for s in several for world in test.worlds for seed in test.seeds(s, world)})
    alone = [test.of_seed(seed) for seed in seeds]
    rows = []
    for setting in (s for s in several if s != reference):
        found = [differences(phase, setting, reference, metric) for phase in alone for metric in metrics]
        rows.append([Cell(setting.label), *(_points(gaps, 100, 1) for gaps in found)])
    columns = [
        f"seed {seed}, {len(phase.seen(reference))} worlds: {title}"
        for seed, phase in zip(seeds, alone, strict=True)
        for title in metrics.values()
    ]
    note = f"Percentage points. {_WORLDS}."
    return ReportTable(f"Each training seed by itself, against {reference.label}", ["", *columns], rows, note)


def variance_table(bench: Bench, test: Phase) -> ReportTable | None:
    """Where the variance of a run's mean comes from, for each chosen setting; None with fewer than two worlds."""
    metrics = ("greedy", "mean", f"pass@{bench.rule.k}")
    rows = []
    for setting in test.settings:
        if len(test.seen(setting)) < 2:
            continue
        found = [components(list(test.table(setting, metric).values())) for metric in metrics]
        rows.append([Cell(setting.label), *(entry for parts in found for entry in _deviations(parts))])
    if not rows:
        return None
    titles = {"mean": "mean@n"}
    columns = [
        f"{titles.get(metric, metric)}: {part}" for metric in metrics for part in ("problems", "seeds", "worlds")
    ]
    note = "Standard deviations in percentage points; –: not two of them. Seeds come from the methods trained twice."
    return ReportTable("Components of variance of one run's mean", ["", *columns], rows, note)


def _deviations(parts: Components) -> list[Cell]:
    found = (parts.problems, parts.seeds, parts.worlds)
    return [Cell("–" if math.isnan(part) else f"{100 * part:.1f}") for part in found]
