"""Metrics of repeated sampling: pass@k, mean@k, keep and exploration rate (arXiv 2509.07430, Tables 1–4 and 8, Fig. 4),
and majority voting. A problem was sampled n times, c of them correct. Intervals are over problems (percentile
bootstrap, reproducible from its seed), or over seeds and problems together. Only numpy.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.errors import UserError
from dph.types import Interval

FloatArray = NDArray[np.float64]
Statistic = Callable[[FloatArray], FloatArray]
"""From resampled values [resamples, problems] or [resamples, problems, d] to the statistic of each, [resamples]."""

Range = tuple[float, float]
UNBOUNDED: Range = (-math.inf, math.inf)

_BLOCK = 1 << 18
"""Values gathered at once, which bounds the memory that resampling takes and changes no draw."""


def _counts(n: ArrayLike, c: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    samples, correct = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64))
    if np.any(samples < 1) or np.any(correct < 0) or np.any(correct > samples):
        raise ValueError("counts must satisfy 0 ≤ c ≤ n and n ≥ 1")
    return samples, correct


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> FloatArray:
    """Unbiased pass@k of each problem: 1 − C(n−c, k) / C(n, k) (arXiv 2107.03374), in the broadcast shape of n and c.

    It is the probability that k of the n samples, drawn without replacement, hold a correct one. "Any of the first k"
    has the same mean and more variance; drawing with replacement is biased downwards. Its standard error is large for
    n < 2k. Raises UserError if k < 1 or a problem has fewer than k samples.
    """
    samples, correct = _counts(n, c)
    if k < 1:
        raise UserError(f"pass@k needs k of at least 1, but k is {k}")
    if np.any(samples < k):
        fewest = f"pass@{k} needs at least {k} samples of every problem, but one has {samples.min()}"
        raise UserError(f"{fewest}; draw more samples or lower k")
    all_wrong = np.ones(samples.shape)
    for i in range(k):
        # Passes through exactly 0 once the wrong samples are used up, and stays there.
        all_wrong *= (samples - correct - i) / (samples - i)
    return 1.0 - all_wrong


def missed_at_k(n: ArrayLike, c: ArrayLike, k: int) -> FloatArray:
    """Unbiased probability that k samples of each problem hold no correct one: 1 − pass@k, and 1 for k = 0. The product
    of two policies' values is the same probability for a mix of their samples. Shapes and errors as in `pass_at_k`."""
    return 1.0 - pass_at_k(n, c, k) if k else np.ones(_counts(n, c)[0].shape)


def mean_at_k(n: ArrayLike, c: ArrayLike) -> FloatArray:
    """mean@k of each problem, k = n: the share c/n of correct samples (Table 8); the same as pass@1."""
    samples, correct = _counts(n, c)
    return correct / samples


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4 … up to limit."""
    return [1 << i for i in range(limit.bit_length())]


def sample_metrics(counts: Sequence[tuple[int, int]], n: int) -> dict[str, FloatArray]:
    """mean@n, and pass@k for k = 1, 2, 4 … up to n, of each problem that has one judged sample, and k, without metrics
    that no problem has. counts: of each problem, the judged and the correct ones of its n samples."""
    pairs = np.array([pair for pair in counts if pair[0] > 0]).reshape(-1, 2)
    metrics = {f"mean@{n}": mean_at_k(pairs[:, 0], pairs[:, 1])}
    for k in powers_of_two(n):
        enough = pairs[pairs[:, 0] >= k]
        metrics[f"pass@{k}"] = pass_at_k(enough[:, 0], enough[:, 1], k)
    return {name: values for name, values in metrics.items() if values.size}


def cover_at(n: ArrayLike, c: ArrayLike, share: float) -> FloatArray:
    """cover@τ of each problem: 1 if at least a share τ of its n samples is correct, else 0."""
    samples, correct = _counts(n, c)
    return (correct >= share * samples - 1e-9).astype(np.float64)


def ratio_of_sums(above: ArrayLike, below: ArrayLike) -> FloatArray:
    """Σ above / Σ below over problems, [..., problems] → [...]; NaN if Σ below is not positive.

    The keep rate is Σ ref·trained / Σ ref: of the problems that π_ref solves within k, the share that the trained
    policy solves within k (§6, Fig. 4). The exploration rate has 1 − ref for ref. Both sides have one of two forms:

    * 0 or 1, "solved by one of k samples": the paper's count, which depends on the particular k samples;
    * pass@k estimates: the ratio of the expected counts, with k samples of π_ref and k others of the trained policy.
      It uses all n samples and so varies less.

    A policy compared with itself does not keep everything: resample π_ref for the noise floor.
    """
    numerator, denominator = (np.asarray(side, dtype=np.float64).sum(-1) for side in (above, below))
    return np.divide(numerator, denominator, out=np.full_like(denominator, np.nan), where=denominator > 0)[()]


def majority_at_k(answers: Sequence[Hashable], correct: Sequence[bool], k: int) -> float:
    """maj@k of a problem (self-consistency, arXiv 2203.11171): the probability that the most frequent answer of k of
    its n samples, drawn without replacement, is correct. It is unbiased and uses all samples, as pass@k does.

    A tie goes to each of the tied answers with equal probability. A sample with the answer None casts no vote; without
    any vote the answer is wrong. If samples with one answer have different verdicts, it counts as correct with their
    share of correct ones. Raises UserError if k is not in 1 … n.
    """
    n = len(answers)
    if not 1 <= k <= n:
        raise UserError(f"maj@{k} needs at least {max(1, k)} samples and a positive k, but the problem has {n} samples")
    counts = Counter(answers)
    right = Counter(answer for answer, good in zip(answers, correct, strict=True) if good)
    silent = counts.pop(None, 0)
    if k == n:  # nothing is drawn: the most frequent answers win, each with equal probability
        most = max(counts.values(), default=0)
        winners = [answer for answer, count in counts.items() if count == most]
        return min(1.0, sum((right[answer] / most * (1 / len(winners)) for answer in winners), 0.0))
    value = 0.0
    for answer, count in counts.items():
        if right[answer]:
            others = [number for other, number in counts.items() if other != answer]
            value += right[answer] / count * _wins(count, others, silent, k)
    return min(1.0, value)


def _wins(count: int, others: Sequence[int], silent: int, k: int) -> float:
    """The probability that an answer that `count` samples have wins among k samples of all n.

    Draws without replacement are independent binomial draws with any success probability, given that they add up to k:
    Σ over its votes t of b(t) · P(the others have k − t votes, none more than t) / P(k), with 1/(1 + e) for e ties.
    """
    n = count + sum(others) + silent
    share = k / n
    total = 0.0
    for votes in range(1, min(count, k) + 1):
        left = k - votes
        fewer = [number for number in others if number < votes]
        start = np.zeros((left // votes + 1, left + 1))  # [answers that tie, votes of the others]
        drawn = _binomial(sum(fewer) + silent, share)[: left + 1]
        start[0, : len(drawn)] = drawn
        for number in others:
            if number >= votes:
                start = _add(start, _binomial(number, share)[: votes + 1])
        ties = 1 / (1 + np.arange(len(start)))
        total += _binomial(count, share)[votes] * float(start[:, left] @ ties)
    return total / _binomial(n, share)[k]


def _add(table: FloatArray, weights: FloatArray) -> FloatArray:
    """The table after one more answer, which has s votes with probability weights[s]; with the most votes it ties."""
    most = len(weights) - 1
    after = np.zeros_like(table)
    for votes, weight in enumerate(weights[: min(most, table.shape[1])]):
        after[:, votes:] += weight * table[:, : table.shape[1] - votes]
    if table.shape[1] > most:
        after[1:, most:] += weights[most] * table[:-1, : table.shape[1] - most]
    return after


@lru_cache(4096)
def _binomial(n: int, share: float) -> FloatArray:
    """Probabilities of 0 … n successes in n trials, each with a probability between 0 and 1."""
    chances = np.zeros(n + 1)
    for s in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(s + 1) - math.lgamma(n - s + 1)
        chances[s] = math.exp(ways + s * math.log(share) + (n - s) * math.log1p(-share))
    return chances


def bootstrap_interval(
    values: ArrayLike,
    statistic: Statistic = lambda values: values.mean(-1),
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of a statistic over problems, by resampling them: it covers the choice of problems and, through them, of
    samples, but not of training seeds.

    values: [problems] or [problems, d]; whole rows are resampled. For a statistic of several columns, such as a ratio,
    stack them: `bootstrap_interval(np.stack([above, below], 1), lambda v: ratio_of_sums(v[..., 0], v[..., 1]))`.
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


def cluster_bootstrap(values: ArrayLike, within: Range = UNBOUNDED, resamples: int = 2000, seed: int = 0) -> Interval:
    """Interval of the mean of values [seeds, problems] over training seeds and problems together, as `widened_by_seeds`
    says; with one seed over problems only.

    within: the range of what is estimated, which the interval does not leave.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be [seeds, problems], but have shape {array.shape}")
    return widened_by_seeds(bootstrap_interval(array.mean(0), resamples=resamples, seed=seed), [array], within)


def widened_by_seeds(problems: Interval, sides: Sequence[FloatArray], within: Range = UNBOUNDED) -> Interval:
    """Interval over seeds and problems, from one over problems and the values [seeds, problems] of the one or two
    sides whose means (or difference of means) over seeds it was computed from.

    A value is the sum of effects of its seed and of its problem and of a residual (two-way random effects, crossed:
    all seeds have the same problems). The half-widths of two sources of error are added in quadrature, each with the
    quantile of its own degrees of freedom (Howe 1974; Zou and Donner 2008):

    * seeds: Student's t times the standard error of the seeds' means, which contains the residual. Two sides with
      equally many seeds have one t with Welch's degrees of freedom; otherwise each has its own, with seeds − 1. A side
      with one seed has no part in it.
    * problems: the interval over problems without the share of the residual in it, which is estimated from the mean
      square of the residual. Its two half-widths may differ.

    The result is never narrower than the interval over problems. One approximate t for the sum of all variances
    (Satterthwaite) is too narrow with few seeds, and so are Welch's degrees of freedom if the side with fewer seeds
    varies more.
    """
    several = [values for values in sides if len(values) > 1]
    column = sides[0].mean(0) - (sides[1].mean(0) if len(sides) > 1 else 0.0)
    spread = float(column.var(ddof=1)) if len(column) > 1 else 0.0
    share = max(0.0, 1.0 - sum(map(_residual, several)) / spread) if spread > 0 else 0.0
    of_seeds = _seeds_half_width(several, (1.0 + problems.level) / 2.0)

    def reach(distance: float) -> float:
        return max(distance, math.hypot(math.sqrt(share) * distance, of_seeds))

    low = problems.estimate - reach(problems.estimate - problems.low)
    high = problems.estimate + reach(problems.high - problems.estimate)
    return Interval(problems.estimate, max(low, within[0]), min(high, within[1]), problems.level)


def _residual(values: FloatArray) -> float:
    """The residual's part of the variance of the problems' means over seeds; values [seeds, problems]."""
    seeds, count = values.shape
    residual = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    return float((residual**2).sum()) / ((seeds - 1) * max(1, count - 1) * seeds)


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
    """The quantile of Student's t with df ≥ 1 degrees of freedom for p in [0.5, 1), to about five digits: atan(t/√df)
    has a density proportional to cos^(df − 1), which is integrated by the trapezoidal rule."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (df - 1.0)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(float(np.interp(2 * p - 1, mass / mass[-1], angles)))
