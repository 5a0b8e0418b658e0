"""95 % intervals of means over problems, of ratios of such means, and over several training runs: one method for every
command and report. Its coverage is in docs/concepts/intervals.md.

An interval of a mean adds one imaginary problem at each end of the range (Agresti and Coull 1998; of paired
differences, Bonett and Price 2012) and uses Student's t. Unlike a percentile bootstrap, it has a width if all problems
agree, and it covers as often as it says with few problems and near the ends. Only numpy.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.types import Interval

FloatArray = NDArray[np.float64]
Range = tuple[float, float]
SHARE: Range = (0.0, 1.0)
UNBOUNDED: Range = (-math.inf, math.inf)

_LEVEL = 0.95


def mean_interval(values: ArrayLike, low: float = 0.0, high: float = 1.0) -> Interval:
    """The mean of values [problems] with its interval for other problems of the same kind.

    low, high: the ends of the range of a value. If there is no upper end, as for a number of styles, the imaginary
    problems are at 0 and at twice the largest value; for differences of such values, at plus and minus the largest.
    Raises ValueError without values.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"an interval needs values [problems], but they have shape {array.shape}")
    return ratio_interval(array, np.ones(array.size), low, high)


def ratio_interval(above: ArrayLike, below: ArrayLike, low: float = 0.0, high: float = 1.0) -> Interval:
    """Σ above / Σ below over problems, such as a keep rate, with its interval; for below = 1 it is `mean_interval`.

    The two imaginary problems have the largest `below`, and a ratio at each end of low … high. The spread is that of
    the ratio's linear part; Student's t has one degree of freedom less than the problems that Σ below is worth (Kish:
    (Σ below)² / Σ below²). NaN if Σ below is not positive.
    """
    tops, weights = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    if tops.shape != weights.shape or tops.ndim != 1 or tops.size == 0:
        raise ValueError(f"a ratio needs two values of each problem, but they have shape {tops.shape}, {weights.shape}")
    total = float(weights.sum())
    if total <= 0:
        return Interval(math.nan, math.nan, math.nan, _LEVEL)
    worth = total * total / float((weights * weights).sum())
    first, last = _ends(tops, low, high)
    weight = float(weights.max())
    tops, weights = np.append(tops, [weight * first, weight * last]), np.append(weights, [weight, weight])
    centre = float(tops.sum() / weights.sum())
    linear = (tops - centre * weights) / float(weights.mean())
    quantile = student_quantile((1 + _LEVEL) / 2, max(1.0, round(worth, 2) - 1))
    reach = quantile * float(linear.std(ddof=1)) / math.sqrt(len(linear))
    estimate = float(tops[:-2].sum() / total)
    return Interval(estimate, max(low, min(estimate, centre - reach)), min(high, max(estimate, centre + reach)), _LEVEL)


def _ends(values: FloatArray, low: float, high: float) -> Range:
    """Where the imaginary problems are."""
    largest = float(np.abs(values).max()) or 1.0
    return (
        low if math.isfinite(low) else -largest,
        high if math.isfinite(high) else largest * (2 if math.isfinite(low) else 1),
    )


def interval_over_runs(values: ArrayLike, within: Range = SHARE) -> Interval:
    """Interval of the mean of values [runs, problems] over training runs and problems together, as `widened_by_runs`
    says; with one run over problems only. within: the range of a value."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be [runs, problems], but have shape {array.shape}")
    return widened_by_runs(mean_interval(array.mean(0), *within), [array], within)


def difference_over_runs(new: ArrayLike, old: ArrayLike, within: Range = SHARE) -> Interval:
    """Interval of mean(new) − mean(old) for values [runs of new, problems] and [runs of old, problems] on the same
    problems.

    Problems are paired, because a hard problem is hard for both; training runs are not, because they are independent.
    A side with one run adds no spread of runs: the interval holds for that very model. within: the range of a value.
    Raises ValueError for other shapes.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (new, old)]
    if any(side.ndim != 2 for side in sides) or sides[0].shape[1] != sides[1].shape[1]:
        raise ValueError(f"values must be [runs, problems] of the same problems, but are {[s.shape for s in sides]}")
    reach = within[0] - within[1], within[1] - within[0]
    return widened_by_runs(mean_interval(sides[0].mean(0) - sides[1].mean(0), *reach), sides, reach)


def widened_by_runs(problems: Interval, sides: Sequence[FloatArray], within: Range = UNBOUNDED) -> Interval:
    """Interval over training runs and problems, from one over problems and the values [runs, problems] of the one or
    two sides whose means (or difference of means) over runs it was computed from.

    A value is the sum of effects of its run and of its problem and of a residual (two-way random effects, crossed:
    all runs have the same problems). The half-widths of two sources of error are added in quadrature, each with the
    quantile of its own degrees of freedom (Howe 1974; Zou and Donner 2008):

    * runs: Student's t times the standard error of the runs' means, which contains the residual. Two sides with
      equally many runs have one t with Welch's degrees of freedom; otherwise each has its own, with runs − 1. A side
      with one run has no part in it.
    * problems: the interval over problems without the share of the residual in it, which is estimated from the mean
      square of the residual. Its two half-widths may differ.

    The result is never narrower than the interval over problems. One approximate t for the sum of all variances
    (Satterthwaite) is too narrow with few runs, and so are Welch's degrees of freedom if the side with fewer runs
    varies more.
    """
    several = [values for values in sides if len(values) > 1]
    if not several:
        return problems
    column = sides[0].mean(0) - (sides[1].mean(0) if len(sides) > 1 else 0.0)
    spread = float(column.var(ddof=1)) if len(column) > 1 else 0.0
    share = max(0.0, 1.0 - sum(map(_residual, several)) / spread) if spread > 0 else 0.0
    of_runs = _half_width_of_runs(several, (1.0 + problems.level) / 2.0)

    def reach(distance: float) -> float:
        return max(distance, math.hypot(math.sqrt(share) * distance, of_runs))

    low = problems.estimate - reach(problems.estimate - problems.low)
    high = problems.estimate + reach(problems.high - problems.estimate)
    return Interval(problems.estimate, max(low, within[0]), min(high, within[1]), problems.level)


def _residual(values: FloatArray) -> float:
    """The residual's part of the variance of the problems' means over runs; values [runs, problems]."""
    runs, count = values.shape
    residual = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    return float((residual**2).sum()) / ((runs - 1) * max(1, count - 1) * runs)


def _half_width_of_runs(sides: Sequence[FloatArray], p: float) -> float:
    """Half-width for the choice of runs, with the quantile p of Student's t; sides [runs, problems]."""
    errors = [float(values.mean(1).var(ddof=1)) / len(values) for values in sides]
    degrees = [float(len(values) - 1) for values in sides]
    if len(set(degrees)) == 1 and sum(errors) > 0:
        welch = degrees[0] * sum(errors) ** 2 / sum(error**2 for error in errors)
        return student_quantile(p, welch) * math.sqrt(sum(errors))
    return math.hypot(*(student_quantile(p, df) * math.sqrt(e) for df, e in zip(degrees, errors, strict=True)))


@lru_cache(1024)
def student_quantile(p: float, df: float) -> float:
    """The quantile of Student's t with df ≥ 1 degrees of freedom for p in [0.5, 1), to about five digits: atan(t/√df)
    has a density proportional to cos^(df − 1), which is integrated by the trapezoidal rule."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (df - 1.0)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(float(np.interp(2 * p - 1, mass / mass[-1], angles)))
