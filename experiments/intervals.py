"""Intervals of means over worlds or kinds of problems."""

import math

import numpy as np
from numpy.typing import ArrayLike

from dph.measure.intervals import Interval, student_quantile


def student_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of the mean of values [n] that were drawn independently, such as the means of worlds or of
    kinds of problems. NaN for the ends with fewer than two values, and for the mean without any."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return Interval(float(array.mean()) if array.size else math.nan, math.nan, math.nan, level)
    error = float(array.std(ddof=1)) / math.sqrt(array.size)
    half = student_quantile((1 + level) / 2, array.size - 1.0) * error
    return Interval(float(array.mean()), float(array.mean()) - half, float(array.mean()) + half, level)
