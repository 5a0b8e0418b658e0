"""Figures of merit of a frontier, and their spread over worlds.

A point is (accuracy, coverage): greedy accuracy or mean@n, and pass@k. A method's points in one world are its frontier.
Claims are about worlds: an interval covers the choice of worlds, each with its own databases, questions and base model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dph.report.data import MetricValue
from experiments.intervals import student_interval

Place = tuple[float, float]


def hypervolume(points: Sequence[Place], corner: Place) -> float:
    """Area that the points dominate above the corner: of all (x, y) with corner ≤ (x, y) ≤ some point."""
    area, covered = 0.0, corner[1]
    for x, y in sorted(points, reverse=True):
        if x > corner[0] and y > covered:
            area += (x - corner[0]) * (y - covered)
            covered = y
    return area


def undominated(points: Sequence[Place]) -> list[Place]:
    """The points that no other point equals or exceeds in both coordinates, by accuracy; equal points once."""
    found: list[Place] = []
    for x, y in sorted(set(points), reverse=True):
        if not found or y > found[-1][1]:
            found.append((x, y))
    return found[::-1]


def attained(points: Sequence[Place], accuracy: float) -> float:
    """The highest coverage of a point with at least this accuracy; NaN if there is none."""
    return max((y for x, y in points if x >= accuracy), default=math.nan)


def attainment(frontiers: Sequence[Sequence[Place]], goals: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Mean over worlds of the coverage attained at each distance from that world's goal; NaN where a world does not
    attain it, because a mean over other worlds would be another quantity.

    Args:
        frontiers, goals: points and accuracy to reach, by world.
        offsets: distances; negative ones lie below the goal.
    """
    pairs = list(zip(frontiers, goals, strict=True))
    return [float(np.mean([attained(points, goal + offset) for points, goal in pairs])) for offset in offsets]


def over_worlds(values: Sequence[float], level: float = 0.95) -> MetricValue:
    """Mean over worlds with Student's interval; worlds that are NaN are left out. No interval with fewer than two."""
    found = student_interval([value for value in values if not math.isnan(value)], level)
    return MetricValue(found.estimate, found.low, found.high)


@dataclass(frozen=True, slots=True)
class Components:
    """Standard deviations of the mean of one run in one world: what other problems of that world, another training
    seed, another world would do to it. NaN where there are not two of them."""

    problems: float
    seeds: float
    worlds: float


def components(worlds: Sequence[np.ndarray]) -> Components:
    """Components of variance, from the values [seeds, problems] of a metric in each world.

    Within a world: seeds crossed with problems. Between worlds: what the variance of their means has beyond the parts
    of problems and seeds in it. Without a second seed in any world, that part of the seeds stays in `worlds`.
    """
    of_problems = [float(values.mean(0).var(ddof=1)) / values.shape[1] for values in worlds if values.shape[1] > 1]
    of_seeds = [float(values.mean(1).var(ddof=1)) - _noise(values) for values in worlds if len(values) > 1]
    problems = float(np.mean(of_problems)) if of_problems else math.nan
    seeds = max(0.0, float(np.mean(of_seeds))) if of_seeds else math.nan
    between = math.nan
    if len(worlds) > 1:
        shared = 0.0 if math.isnan(seeds) else seeds * float(np.mean([1 / len(values) for values in worlds]))
        between = float(np.var([values.mean() for values in worlds], ddof=1)) - problems - shared
    return Components(*(math.sqrt(max(0.0, part)) if part == part else part for part in (problems, seeds, between)))


def _noise(values: np.ndarray) -> float:
    """What the rest, which is neither of the seed nor of the problem, adds to the variance of the seeds' means."""
    count, size = values.shape
    rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    return float((rest**2).sum()) / ((count - 1) * max(1, size - 1) * size)
