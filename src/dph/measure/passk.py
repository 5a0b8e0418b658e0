"""Metrics of repeated sampling: pass@k, mean@k, keep and exploration rate (arXiv 2509.07430, Tables 1–4 and 8, Fig. 4),
and majority voting. A problem was sampled n times, c of them correct. Only numpy.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.errors import UserError, counted
from dph.measure.intervals import FloatArray, mean_interval


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
        fewest = f"pass@{k} needs at least {counted(k, 'sample')} of every problem, but one has {samples.min()}"
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


def majority_at_k(answers: Sequence[Hashable], correct: Sequence[bool], k: int) -> float:
    """maj@k of a problem (self-consistency, arXiv 2203.11171): the probability that the most frequent answer of k of
    its n samples, drawn without replacement, is correct. It is unbiased and uses all samples, as pass@k does.

    A tie goes to each of the tied answers with equal probability. A sample with the answer None casts no vote; without
    any vote the answer is wrong. If samples with one answer have different verdicts, it counts as correct with their
    share of correct ones. Raises UserError if k is not in 1 … n.
    """
    n = len(answers)
    if not 1 <= k <= n:
        fewest = f"maj@{k} needs at least {counted(max(1, k), 'sample')} and a positive k"
        raise UserError(f"{fewest}, but the problem has {counted(n, 'sample')}")
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
            others = [number for rival, number in counts.items() if rival != answer]
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


def coverage_shares(n: ArrayLike, c: ArrayLike) -> dict[str, float]:
    """Numbers for a trainer's log, by name: pass@k for k = 2, 4, … up to the largest n, each the mean over problems
    with at least k responses, with the ends of its interval (pass@k/low, pass@k/high), and cover@τ for τ = ½ and 1.

    n, c: [problems], the numbers of responses, which may be 0, and of correct ones.
    """
    total, correct = np.asarray(n), np.asarray(c)
    shares: dict[str, float] = {}
    for k in powers_of_two(int(total.max(initial=0)))[1:]:
        interval = mean_interval(pass_at_k(total[total >= k], correct[total >= k], k))
        low, high = f"pass@{k}/low", f"pass@{k}/high"
        shares |= {f"pass@{k}": interval.estimate, low: interval.low, high: interval.high}
    judged = total > 0
    for share in (0.5, 1.0) if shares else ():
        shares[f"cover@{share:g}"] = float(cover_at(total[judged], correct[judged], share).mean())
    return shares
