"""Bootstrap confidence intervals over problems, over paired differences, and over seeds and problems together.

All are percentile intervals and reproducible by their seed. Only numpy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Statistic = Callable[[NDArray[np.float64]], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean())


def _interval(estimate: float, draws: NDArray[np.float64], level: float) -> Interval:
    tail = (1.0 - level) / 2.0
    # A ratio such as the keep rate can be undefined in a resample; those resamples are left out.
    low, high = np.nanquantile(draws, [tail, 1.0 - tail]) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(estimate, float(low), float(high), level)


def _check(values: NDArray[np.float64], level: float) -> None:
    if values.size == 0:
        raise ValueError("a bootstrap needs at least one value")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, but is {level}")


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic = _mean, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of a statistic over problems, the mean by default, by resampling problems.

    values: [problems] or [problems, d]; whole rows are resampled. For a statistic of several columns, such as the keep
    rate, stack them: `bootstrap_interval(np.stack([ref, trained], 1), lambda v: keep_rate(v[:, 0], v[:, 1]))`.

    The interval covers the choice of problems and, through them, of samples; it does not cover training seeds.
    """
    array = np.asarray(values, dtype=np.float64)
    _check(array, level)
    rng = np.random.default_rng(seed)
    count = len(array)
    draws = np.array([statistic(array[rng.integers(count, size=count)]) for _ in range(resamples)])
    return _interval(statistic(array), draws, level)


def paired_difference(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of mean(a − b), a and b [problems] measured on the same problems in the same order.

    Narrower than two separate intervals suggest, because what makes a problem hard for both cancels.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape:
        raise ValueError(f"paired values must cover the same problems, but have shapes {left.shape} and {right.shape}")
    return bootstrap_interval(left - right, level=level, resamples=resamples, seed=seed)


def cluster_bootstrap(values: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Interval of the mean of values [seeds, problems] over training seeds and problems together.

    Each resample draws seeds (whole rows) and problems (whole columns) with replacement. The problems are the same ones
    for every seed, hence drawn once per resample and not anew within each seed: a hard problem is hard for all seeds,
    and independent draws would make the interval too narrow. With one seed this is `bootstrap_interval`. With fewer
    than about five seeds the spread between seeds is underestimated, as by any bootstrap.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be [seeds, problems], but have shape {array.shape}")
    _check(array, level)
    rng = np.random.default_rng(seed)
    seeds, problems = array.shape
    draws = np.empty(resamples)
    for i in range(resamples):
        rows, columns = rng.integers(seeds, size=seeds), rng.integers(problems, size=problems)
        draws[i] = array[np.ix_(rows, columns)].mean()
    return _interval(_mean(array), draws, level)


def cluster_difference(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of mean(a) − mean(b) for values [seeds of a, problems] and [seeds of b, problems] on the same problems.

    Each resample draws problems once for both, since a hard problem is hard for both, and the training seeds of each
    side apart, since they are independent runs. With one seed on each side this is `paired_difference`.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise ValueError(f"values must be [seeds, problems] of the same problems, but have {left.shape}, {right.shape}")
    _check(left, level)
    _check(right, level)
    rng = np.random.default_rng(seed)
    problems = left.shape[1]
    # A resample is a vector of how often each seed or problem was drawn; its mean is a product with those weights.
    drawn = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples) / problems
    sides = []
    for values in (left, right):
        seeds = len(values)
        weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
        sides.append(((weights @ values) * drawn).sum(1))
    return _interval(_mean(left) - _mean(right), sides[0] - sides[1], level)
