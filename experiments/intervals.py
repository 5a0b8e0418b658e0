"""Intervals of differences between methods, and of means over worlds or kinds of problems."""

import math

import numpy as np
from numpy.typing import ArrayLike

from dph.evaluation.passk import (
    UNBOUNDED,
    Interval,
    Range,
    bootstrap_interval,
    student_quantile,
    widened_by_seeds,
)


def cluster_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    within: Range = UNBOUNDED,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of mean(a) − mean(b) for values [seeds of a, problems] and [seeds of b, problems] on the same problems.

    Problems are paired, because a hard problem is hard for both; training seeds are not, because they are independent
    runs. A side with one seed adds no spread of seeds: the interval holds for that very model. within and
    method: as for `dph.evaluation.passk.cluster_bootstrap`.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise ValueError(f"values must be [seeds, problems] of the same problems, but have {left.shape}, {right.shape}")
    problems = bootstrap_interval(left.mean(0) - right.mean(0), level=level, resamples=resamples, seed=seed)
    return widened_by_seeds(problems, [left, right], within)


def student_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of the mean of values [n] that were drawn independently, such as the means of worlds or of
    kinds of problems. NaN for the ends with fewer than two values, and for the mean without any."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return Interval(float(array.mean()) if array.size else math.nan, math.nan, math.nan, level)
    error = float(array.std(ddof=1)) / math.sqrt(array.size)
    half = student_quantile((1 + level) / 2, array.size - 1.0) * error
    return Interval(float(array.mean()), float(array.mean()) - half, float(array.mean()) + half, level)
