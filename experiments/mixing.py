"""Free baselines, which need evaluations but no training: a mix of samples of two policies, and a frontier's lines.

A user of pass@k has k samples and a verifier, so that b of the k samples can come from the base model. Everything here
is computed from counts (judged samples, correct ones) of problems in one order.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from math import comb

import numpy as np

from dph.measure.passk import FloatArray, missed_at_k, pass_at_k

Counts = Sequence[tuple[int, int]]
"""Samples and correct samples of each problem."""


def missed(counts: Counts, k: int) -> FloatArray:
    """Of each problem, the probability that k samples hold no correct one; NaN if it has fewer than k samples."""
    n, c = np.array(counts).T
    enough = n >= k
    values = np.full(len(n), math.nan)
    values[enough] = missed_at_k(n[enough], c[enough], k)
    return values


def mean_of(counts: Counts) -> float:
    """Mean over problems of the share of correct samples."""
    return sum(c / n for n, c in counts) / len(counts)


def pass_of(counts: Counts, k: int) -> float:
    """pass@k, mean over problems."""
    return 1 - float(missed(counts, k).mean())


def cover_of(counts: Counts, share: float, k: int) -> float:
    """cover@share, mean over problems: probability that at least this share of k samples is correct. With share 1/k it
    is pass@k; a larger share does not reward a rare guess."""
    least = max(1, math.ceil(share * k - 1e-9))
    covered = [
        sum(comb(c, i) * comb(n - c, k - i) for i in range(least, min(c, k) + 1)) / comb(n, k) for n, c in counts
    ]
    return sum(covered) / len(counts)


def mixed(counts: Counts, base: Counts, b: int, k: int) -> tuple[float, float]:
    """Mean and pass@k, over problems, if b of k samples come from the base model: unbiased from the counts of both."""
    mean = (b * mean_of(base) + (k - b) * mean_of(counts)) / k
    return mean, 1 - float((missed(counts, k - b) * missed(base, b)).mean())


def interpolated(points: Sequence[tuple[float, float]], mean: float) -> float | None:
    """The highest pass@k at this mean on the lines between neighbouring points (mean, pass@k), which are in the order
    of a family's strength; None if no line reaches the mean: nothing is extrapolated."""
    found = [
        low[1] + (high[1] - low[1]) * (mean - low[0]) / (high[0] - low[0])
        if high[0] != low[0]
        else max(low[1], high[1])
        for low, high in pairwise(points)
        if min(low[0], high[0]) <= mean <= max(low[0], high[0])
    ]
    return max(found, default=None)


def mix_at(counts: Counts, base: Counts, mean: float, k: int) -> float | None:
    """pass@k of the mix of a policy with its base model that has this mean; None if no mix has it."""
    return interpolated([mixed(counts, base, b, k) for b in range(k + 1)], mean)


def distinct_among(kinds: Sequence[int], m: int) -> float:
    """Expected number of kinds among m samples drawn without replacement; kinds: how many samples are of each kind."""
    return float(pass_at_k(sum(kinds), kinds, m).sum())


def simpson(kinds: Sequence[int]) -> float:
    """1 − Σp²: probability that two samples are of different kinds, unbiased from the counts of each kind."""
    n = sum(kinds)
    return 1 - sum(count * (count - 1) for count in kinds) / (n * (n - 1)) if n > 1 else math.nan
