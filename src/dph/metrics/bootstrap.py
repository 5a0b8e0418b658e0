"""Bootstrap confidence intervals over problems, over paired differences, and over seeds and problems together.

All are percentile intervals, reproducible from their seed. A share of successes has Wilson's interval too. Only numpy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Statistic = Callable[[FloatArray], FloatArray]
"""From resampled values [resamples, problems] or [resamples, problems, d] to the statistic of each, [resamples]."""

_BLOCK = 1 << 18
"""Values gathered at once, which bounds the memory that resampling takes."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float


def _mean(values: FloatArray) -> FloatArray:
    return values.mean(-1)


def _interval(estimate: float, draws: FloatArray, level: float) -> Interval:
    tail = (1.0 - level) / 2.0
    # A ratio such as the keep rate can be undefined in a resample; those resamples are left out.
    low, high = np.nanquantile(draws, [tail, 1.0 - tail]) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(estimate, float(low), float(high), level)


def _check(values: FloatArray, level: float) -> None:
    if values.size == 0:
        raise ValueError("a bootstrap needs at least one value")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, but is {level}")


def bootstrap_interval(
    values: ArrayLike, statistic: Statistic = _mean, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of a statistic over problems, the mean by default, by resampling problems.

    values: [problems] or [problems, d]; whole rows are resampled. For a statistic of several columns, such as the keep
    rate, stack them: `bootstrap_interval(np.stack([ref, trained], 1), lambda v: keep_rate(v[..., 0], v[..., 1]))`.

    The interval covers the choice of problems and, through them, of samples; it does not cover training seeds.
    """
    array = np.asarray(values, dtype=np.float64)
    _check(array, level)
    draws = [statistic(block) for block in _resampled(array, resamples, np.random.default_rng(seed))]
    return _interval(float(statistic(array[None])[0]), np.concatenate(draws), level)


def _resampled(array: FloatArray, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Blocks [some resamples, problems, …]; their size does not change the draws."""
    count = len(array)
    at_once = max(1, _BLOCK // array.size)
    for start in range(0, resamples, at_once):
        yield array[rng.integers(count, size=(min(at_once, resamples - start), count))]


def wilson_interval(successes: int, count: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share of successes (Wilson 1927), which has a width at 0 and at 1 too.

    Raises ValueError unless 0 ≤ successes ≤ count and count ≥ 1.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"a share needs 0 ≤ successes ≤ count and count ≥ 1, but they are {successes} and {count}")
    share, z = successes / count, NormalDist().inv_cdf((1.0 + level) / 2.0)
    width = z * np.sqrt(share * (1.0 - share) / count + z * z / (4 * count * count))
    centre, scale = share + z * z / (2 * count), 1.0 + z * z / count
    # Rounding must not push the bounds past the share itself, at 0 or 1.
    low, high = min(share, (centre - width) / scale), max(share, (centre + width) / scale)
    return Interval(share, float(low), float(high), level)


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

    Each resample draws seeds (whole rows) and problems (whole columns) with replacement. Every seed has the same
    problems, so problems are drawn once per resample and not again for each seed: a hard problem is hard for all seeds,
    and independent draws would make the interval too narrow. With one seed this is `bootstrap_interval`. With fewer
    than about five seeds the spread between seeds is underestimated, as by any bootstrap.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be [seeds, problems], but have shape {array.shape}")
    _check(array, level)
    draws = _cluster_draws([array], resamples, np.random.default_rng(seed))[0]
    return _interval(float(array.mean()), draws, level)


def cluster_difference(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of mean(a) − mean(b) for values [seeds of a, problems] and [seeds of b, problems] on the same problems.

    Each resample draws problems once for both sides, because a hard problem is hard for both, and training seeds for
    each side separately, because they are independent runs. With one seed on each side this is `paired_difference`.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
        raise ValueError(f"values must be [seeds, problems] of the same problems, but have {left.shape}, {right.shape}")
    _check(left, level)
    _check(right, level)
    first, second = _cluster_draws([left, right], resamples, np.random.default_rng(seed))
    return _interval(float(left.mean()) - float(right.mean()), first - second, level)


def _cluster_draws(sides: Sequence[FloatArray], resamples: int, rng: np.random.Generator) -> list[FloatArray]:
    """Means [resamples] of each side's [seeds, problems]; all sides share the drawn problems, but not the seeds."""
    problems = sides[0].shape[1]
    # A resample is a vector of how often each seed or problem was drawn; its mean is a product with those weights.
    drawn = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples) / problems
    means = []
    for values in sides:
        seeds = len(values)
        weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
        means.append(((weights @ values) * drawn).sum(1))
    return means
