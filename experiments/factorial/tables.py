"""The analysis of experiment D1, fixed before its first run: effects over starts from the counts.

Everything is blocked by start. An arm with two training seeds counts as their mean. Intervals are Student's over the
starts, at 95 %.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

import numpy as np

from dph.measure.strata import CLASSES
from experiments.anchor.counts import Evaluated
from experiments.factorial.design import RATES, STARTS, Choice
from experiments.intervals import student_interval
from experiments.mixing import mean_of, missed, mixed, pass_of

Start = Mapping[str, Evaluated]
LEAST_MEAN = -0.5
"""The first comparison also asks that the mean of samples is not lower by more than this many points."""
METRICS = ("greedy", "mean", "pass@8", "pass@32")


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference of two arms in one number, in points of a percent."""

    estimate: float
    low: float
    high: float
    above: int
    """Starts in which it is above 0."""
    starts: int

    def __str__(self) -> str:
        return f"{self.estimate:+.2f} ({self.low:+.2f} to {self.high:+.2f}), above 0 in {self.above} of {self.starts}"


def seeds_of(name: str) -> tuple[str, ...]:
    """The evaluations of an arm that was trained with two seeds."""
    return (name, f"{name}-again")


def level(start: Start, names: Sequence[str], metric: str) -> float:
    """greedy, mean or pass@k of an arm in a start, as a share: the mean over its evaluations."""
    return fmean(_level(start[name], metric) for name in names)


def _level(evaluated: Evaluated, metric: str) -> float:
    if metric == "greedy":
        return fmean(evaluated.greedy)
    return mean_of(evaluated.counts) if metric == "mean" else pass_of(evaluated.counts, int(metric[5:]))


def effect_of(values: Sequence[float]) -> Effect:
    """The effect with these values, as shares, in the starts."""
    points = [100 * value for value in values]
    found = student_interval(points)
    return Effect(found.estimate, found.low, found.high, sum(value > 0 for value in points), len(points))


def effect(starts: Mapping[int, Start], one: Sequence[str], other: Sequence[str], metric: str) -> Effect | None:
    """The first arm minus the second over the starts that have both; None for fewer than two of them."""
    whole = [start for start in starts.values() if all(name in start for name in (*one, *other))]
    if len(whole) < 2:
        return None
    return effect_of([level(start, one, metric) - level(start, other, metric) for start in whole])


def mean_at(frontier: Sequence[tuple[float, float]], passed: float) -> float:
    """The highest mean of samples on the lines between neighbouring points (mean, pass@k) of a frontier at which pass@k
    is at least `passed`; the mean of the point with the highest pass@k if no point has so much. So every start is in
    range."""
    found = [mean for mean, value in frontier if value >= passed]
    for (mean, value), (other_mean, other) in pairwise(frontier):
        if min(value, other) <= passed <= max(value, other) and value != other:
            found.append(mean + (other_mean - mean) * (passed - value) / (other - value))
    return max(found) if found else max(frontier, key=lambda point: point[1])[0]


def primary_table(starts: Mapping[int, Start], choice: Choice) -> Iterator[str]:
    """The two primary comparisons, in their order: the second one is read only if the first one holds."""
    g, x, xr = (seeds_of(name) for name in (choice.grpo, "x", f"xr-{choice.js}"))
    gain, cost = effect(starts, xr, g, "pass@8"), effect(starts, xr, g, "mean")
    added = effect(starts, xr, x, "pass@8")
    yield "| primary comparison | asked for | points, 95 % | |"
    yield "|---|---|---|---|"
    holds = gain is not None and cost is not None and gain.low > 0 and cost.low > LEAST_MEAN
    yield f"| 1: XR − G, pass@8 | above 0 | {gain or '–'} | {'holds' if holds else 'does not hold'} |"
    yield f"| 1: XR − G, mean@64 | above {LEAST_MEAN} | {cost or '–'} | |"
    second = "not read, because 1 does not hold"
    if holds:
        second = "holds" if added is not None and added.low > 0 else "does not hold"
    yield f"| 2: XR − X, pass@8 | above 0 | {added or '–'} | {second} |"


def secondary_table(starts: Mapping[int, Start], choice: Choice) -> Iterator[str]:
    """Differences of arms that the protocol names, without a test; then the mean at equal pass@k."""
    g, x, xr = (seeds_of(name) for name in (choice.grpo, "x", f"xr-{choice.js}"))
    gr, xs, xf, k = (f"gr-{choice.js}",), (f"xs-{choice.js}",), (f"xf-{choice.kl}",), ("k-0.1",)
    single = xr[:1]
    pairs = [("XR − G", xr, g), ("XR − X", xr, x), ("X − G", x, g), ("GR − G", gr, g), ("XR − GR", xr, gr)]
    pairs += [("XS − XR", xs, single), ("XF − XR", xf, single), ("K − G", k, g), ("XR − K", xr, k), ("XS − K", xs, k)]
    free = {"G, step 125": "-step125", "G, step 250": "-step250", "G, halfway weights": "-share0.5"}
    pairs += [(f"XR − {title}", xr, (choice.grpo + name,)) for title, name in free.items()]
    pairs += [(f"XS − {title}", xs, (choice.grpo + name,)) for title, name in free.items()]
    yield "| difference | " + " | ".join(METRICS) + " |"
    yield "|---" * (len(METRICS) + 1) + "|"
    for title, one, other in pairs:
        cells = [str(effect(starts, one, other, metric) or "–") for metric in METRICS]
        yield f"| {title} | " + " | ".join(cells) + " |"
    yield ""
    yield "| mean@64 at equal pass@k, minus that of GRPO's learning rates | pass@8 | pass@32 |"
    yield "|---|---|---|"
    frontier = ["base", *(f"g-{rate}" for rate in RATES)]
    for title, names in (("X", x), ("XR", xr), ("GR", gr), ("XS", xs), ("XF", xf), ("K", k)):
        cells = [str(_at_equal(starts, names, frontier, size) or "–") for size in (8, 32)]
        yield f"| {title} | " + " | ".join(cells) + " |"


def _at_equal(starts: Mapping[int, Start], names: Sequence[str], frontier: Sequence[str], k: int) -> Effect | None:
    metric = f"pass@{k}"
    whole = [start for start in starts.values() if all(name in start for name in (*names, *frontier))]
    if len(whole) < 2:
        return None
    values = []
    for start in whole:
        points = [(level(start, [name], "mean"), level(start, [name], metric)) for name in frontier]
        values.append(level(start, names, "mean") - mean_at(points, level(start, names, metric)))
    return effect_of(values)


def class_table(starts: Mapping[int, Start], choice: Choice, k: int = 32) -> Iterator[str]:
    """Points of pass@k, summed over problems, that each arm gains or loses against the base model in each class of the
    base model's success.

    The class comes from one evaluation of the base model and its level from the other one, and the other way round;
    the mean of both is shown, so that no class regresses to the mean.
    """
    arms = {"G": seeds_of(choice.grpo), "X": seeds_of("x"), "XR": seeds_of(f"xr-{choice.js}")}
    arms |= {"GR": (f"gr-{choice.js}",), "XS": (f"xs-{choice.js}",), "XF": (f"xf-{choice.kl}",), "K": ("k-0.1",)}
    arms |= {"G, halfway weights": (f"{choice.grpo}-share0.5",)}
    titles = ["0", *(f"{low:g}–{high:g}" for low, high in CLASSES[1:])]
    yield f"| pass@{k} against the base model, by its success | " + " | ".join(titles) + " | sum |"
    yield "|---" + "|---:" * (len(CLASSES) + 1) + "|"
    whole = [start for start in starts.values() if "base" in start and "base-again" in start]
    sizes = [class_shares(start, names) for start in whole for names in (("base",), ("base-again",))]
    cells = [f"{100 * value:.1f}" for value in np.mean(sizes, axis=0)] if sizes else ["–"] * len(CLASSES)
    yield "| share of the problems, % | " + " | ".join(cells) + " | 100 |"
    for title, names in arms.items():
        here = [start for start in whole if all(name in start for name in names)]
        if here:
            mean = 100 * np.mean([by_class(start, names, k) for start in here], axis=0)
            cells = [f"{value:+.2f}" for value in (*mean, mean.sum())]
            yield f"| {title} ({len(here)} starts) | " + " | ".join(cells) + " |"


def _classes(evaluated: Evaluated) -> np.ndarray:
    """The number of the class of each problem."""
    n, c = np.array(evaluated.counts).T
    return np.searchsorted([high for _, high in CLASSES], c / n - 1e-12)


def class_shares(start: Start, names: Sequence[str]) -> np.ndarray:
    """The share of the problems in each class, by these evaluations of the base model together."""
    classes = np.concatenate([_classes(start[name]) for name in names])
    return np.bincount(classes, minlength=len(CLASSES)) / len(classes)


def by_class(start: Start, names: Sequence[str], k: int) -> np.ndarray:
    """The part of each class in the change of pass@k from the base model to an arm, over the arm's evaluations. Class
    and level come from two evaluations of the base model, both ways."""
    trained = np.mean([1 - missed(start[name].counts, k) for name in names], axis=0)
    sums = []
    for by, against in (("base", "base-again"), ("base-again", "base")):
        change = trained - (1 - missed(start[against].counts, k))
        sums.append(np.bincount(_classes(start[by]), weights=change, minlength=len(CLASSES)) / len(change))
    return np.mean(sums, axis=0)


def arm_table(starts: Mapping[int, Start], choice: Choice) -> Iterator[str]:
    """Levels of every evaluation, means over the starts that have it, and the change of pass@32 against the base model;
    then mixes of G with samples of the base model."""
    whole = [start for start in starts.values() if "base" in start]
    names = sorted({name for start in whole for name in start})
    yield "| model | starts | " + " | ".join(METRICS) + " | pass@32 − base |"
    yield "|---" + "|---:" * (len(METRICS) + 2) + "|"
    for name in names:
        here = [start for start in whole if name in start]
        cells = [f"{100 * fmean(_level(start[name], metric) for start in here):.1f}" for metric in METRICS]
        change = [100 * (_level(start[name], "pass@32") - _level(start["base"], "pass@32")) for start in here]
        spread = f" ± {stdev(change):.1f}" if len(change) > 1 else ""
        cells.append("" if name == "base" else f"{fmean(change):+.1f}{spread}")
        yield f"| {name} | {len(here)} | " + " | ".join(cells) + " |"
    both = [start for start in whole if choice.grpo in start]
    for b in (2, 4, 8) if both else ():
        points = [mixed(start[choice.grpo].counts, start["base"].counts, b, 32) for start in both]
        mean, passed = (f"{100 * fmean(point[i] for point in points):.1f}" for i in (0, 1))
        yield f"| {choice.grpo} with {b} of 32 samples from the base | {len(both)} | | {mean} | | {passed} | |"


def complete(starts: Mapping[int, Start], choice: Choice) -> list[int]:
    """The starts of the protocol in which every evaluation of the primary comparisons is there."""
    names = {"base", *(name for arm in (choice.grpo, "x", f"xr-{choice.js}") for name in seeds_of(arm))}
    return [start for start in STARTS if names <= starts.get(start, {}).keys()]
