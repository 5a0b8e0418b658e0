"""Confidence intervals: of a share, over problems (percentile bootstrap, reproducible from its seed), and over seeds
and problems together. Only numpy."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dph.evaluation.passk import FloatArray, cover_at, pass_at_k, powers_of_two
from dph.evaluation.wilson import Interval

Statistic = Callable[[FloatArray], FloatArray]
"""From resampled values [resamples, problems] or [resamples, problems, d] to the statistic of each, [resamples]."""

Range = tuple[float, float]
UNBOUNDED: Range = (-math.inf, math.inf)

_BLOCK = 1 << 18
"""Values gathered at once, which bounds the memory that resampling takes and changes no draw."""


def bootstrap_interval(
    values: ArrayLike,
    statistic: Statistic = lambda values: values.mean(-1),
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of a statistic over problems, the mean by default, by resampling problems.

    values: [problems] or [problems, d]; whole rows are resampled. For a statistic of several columns, such as a ratio,
    stack them: `bootstrap_interval(np.stack([above, below], 1), lambda v: ratio_of_sums(v[..., 0], v[..., 1]))`.

    The interval covers the choice of problems and, through them, of samples; it does not cover training seeds.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("a bootstrap needs at least one value")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, but is {level}")
    rng, count, at_once = np.random.default_rng(seed), len(array), max(1, _BLOCK // array.size)
    blocks = (min(at_once, resamples - start) for start in range(0, resamples, at_once))
    draws = np.concatenate([statistic(array[rng.integers(count, size=(block, count))]) for block in blocks])
    tails = [(1.0 - level) / 2.0, 1.0 - (1.0 - level) / 2.0]
    # A ratio such as the keep rate can be undefined in a resample; those resamples are left out.
    low, high = np.nanquantile(draws, tails) if np.isfinite(draws).any() else (np.nan, np.nan)
    return Interval(float(statistic(array[None])[0]), float(low), float(high), level)


def coverage_shares(n: ArrayLike, c: ArrayLike) -> dict[str, float]:
    """Numbers for a trainer's log, by name: pass@k for k = 2, 4, … up to the largest n, each the mean over problems
    with at least k responses, with the ends of its interval (pass@k/low, pass@k/high), and cover@τ for τ = ½ and 1.

    n, c: [problems], the numbers of responses, which may be 0, and of correct ones.
    """
    total, correct = np.asarray(n), np.asarray(c)
    shares: dict[str, float] = {}
    for k in powers_of_two(int(total.max(initial=0)))[1:]:
        interval = bootstrap_interval(pass_at_k(total[total >= k], correct[total >= k], k))
        low, high = f"pass@{k}/low", f"pass@{k}/high"
        shares |= {f"pass@{k}": interval.estimate, low: interval.low, high: interval.high}
    judged = total > 0
    for share in (0.5, 1.0) if shares else ():
        shares[f"cover@{share:g}"] = float(cover_at(total[judged], correct[judged], share).mean())
    return shares


def cluster_bootstrap(
    values: ArrayLike, *, within: Range = UNBOUNDED, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of the mean of values [seeds, problems] over training seeds and problems together.

    within: the range of what is estimated, which the interval does not leave. With one seed this is
    `bootstrap_interval`, over problems only: nothing is known about other seeds. See `widened_by_seeds` for the method.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be [seeds, problems], but have shape {array.shape}")
    problems = bootstrap_interval(array.mean(0), level=level, resamples=resamples, seed=seed)
    return widened_by_seeds(problems, [array], within)


def widened_by_seeds(problems: Interval, sides: Sequence[FloatArray], within: Range = UNBOUNDED) -> Interval:
    """Interval over seeds and problems, from one over problems and the values [seeds, problems] of the one or two
    sides whose means (or difference of means) over seeds it was computed from.

    A value is the sum of effects of its seed and of its problem and of a rest (two-way random effects, crossed: all
    seeds have the same problems). The half-widths of two sources of error are added in quadrature, each with the
    quantile of its own degrees of freedom (Howe 1974; Zou and Donner 2008):

    * seeds: Student's t times the standard error of the seeds' means. The rest is in it. Two sides with equally many
      seeds have one t with Welch's degrees of freedom; otherwise each has its own, with seeds − 1. A side with one seed
      has no part in it.
    * problems: the given interval without the share of the rest in it, which is estimated from the mean square of the
      rest. Its two half-widths may differ.

    The result is never narrower than the given interval. One approximate t for the sum of all variances (Satterthwaite)
    is too narrow with few seeds, and so are Welch's degrees of freedom if the side with fewer seeds varies more.
    """
    several = [values for values in sides if len(values) > 1]
    column = sides[0].mean(0) - (sides[1].mean(0) if len(sides) > 1 else 0.0)
    spread = float(column.var(ddof=1)) if len(column) > 1 else 0.0
    share = max(0.0, 1.0 - sum(map(_rest, several)) / spread) if spread > 0 else 0.0
    of_seeds = _seeds_half_width(several, (1.0 + problems.level) / 2.0)

    def reach(distance: float) -> float:
        return max(distance, math.hypot(math.sqrt(share) * distance, of_seeds))

    low = problems.estimate - reach(problems.estimate - problems.low)
    high = problems.estimate + reach(problems.high - problems.estimate)
    return Interval(problems.estimate, max(low, within[0]), min(high, within[1]), problems.level)


def _rest(values: FloatArray) -> float:
    """What the rest adds to the variance of the problems' means over seeds; values [seeds, problems]."""
    seeds, count = values.shape
    rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    return float((rest**2).sum()) / ((seeds - 1) * max(1, count - 1) * seeds)


def _seeds_half_width(sides: Sequence[FloatArray], p: float) -> float:
    """Half-width for the choice of seeds, with the quantile p of Student's t; sides [seeds, problems]."""
    errors = [float(values.mean(1).var(ddof=1)) / len(values) for values in sides]
    degrees = [float(len(values) - 1) for values in sides]
    if len(set(degrees)) == 1 and sum(errors) > 0:
        welch = degrees[0] * sum(errors) ** 2 / sum(error**2 for error in errors)
        return student_quantile(p, welch) * math.sqrt(sum(errors))
    return math.hypot(*(student_quantile(p, df) * math.sqrt(e) for df, e in zip(degrees, errors, strict=True)))


@lru_cache(64)
def student_quantile(p: float, df: float) -> float:
    """The quantile of Student's t with df ≥ 1 degrees of freedom for p in [0.5, 1), to about five digits.

    The angle atan(t/√df) has a density proportional to cos^(df − 1), which is integrated by the trapezoidal rule.
    """
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (df - 1.0)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(float(np.interp(2 * p - 1, mass / mass[-1], angles)))
