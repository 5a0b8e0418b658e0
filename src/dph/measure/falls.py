"""An alarm about a fall of pass@k on problems that are sampled again and again, with an error over the whole run.

If no problem's chance of being solved ever falls, a run raises the alarm with a probability of at most `alpha`, however
many looks it takes and whenever it ends. docs/concepts/intervals.md has simulations, and the falls that it sees. Only
numpy.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dph.measure.intervals import FloatArray
from dph.measure.passk import pass_at_k

ALPHA = 0.05
_SCREEN = 2.0
"""Standard errors from which a fall is worth a test; to leave a test out raises no false alarm."""
_TILTS = 1.4 ** np.arange(-40, 6)
"""Multiples of the normal limit's tilt that are tried; every tilt gives a bound that holds. The best is far smaller
than that of the normal limit if the samples' chance is near 0 or 1."""

Counts = Mapping[str, tuple[int, int]]
"""By the id of a problem, its correct and all samples."""
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall from earlier looks to the newest that chance does not explain."""

    k: int
    before: float
    """pass@k of the samples of the earlier looks, the mean over problems."""
    after: float
    """The same of the newest looks."""
    steps_before: tuple[int, int]
    """The first and the last step of the earlier looks."""
    steps_after: tuple[int, int]


class FallAlarm:
    """Compares the newest 1, 2, 4, 8 … looks with every earlier group of as many, aligned as 1–2, 3–4, 5–6 …

    Given how many of the samples of both groups of looks are correct, every way of dealing them to the two groups is
    equally likely if a problem's chance was the same, and the earlier group gets more still less often if the chance
    rose. So the probability of a fall is bounded for counts as they are (hypergeometric; Chernoff's bound for the sum
    over problems), without a normal limit. The b-th group of m = 2^j looks has the level alpha / 2^(j+1) / (b (b − 1)),
    which its b − 1 tests share. All levels together are alpha.
    """

    def __init__(self, n: int, alpha: float = ALPHA) -> None:
        """n: the samples of a problem at a look. The alarm is about pass@k for the largest power of two k with 2k ≤ n,
        or k = 1."""
        self.k = 1 << max(0, n.bit_length() - 2)
        self._alpha = alpha
        self._steps: list[int] = []
        self._places: dict[str, int] = {}
        """Of each problem in the arrays."""
        self._groups: list[list[IntArray]] = []
        """Of 1, 2, 4 … looks: each group's correct and all samples of the problems, [problems, 2]."""

    def note(self, step: int, counts: Counts) -> Fall | None:
        """Take a look into account; returns the clearest fall that it shows."""
        self._steps.append(step)
        looks, falls, newest = len(self._steps), [], self._array(counts)
        for j in range(looks.bit_length()):
            if looks % (1 << j):
                break
            if j:
                other = self._groups[j - 1][-2]
                both = (newest[:, 1:] > 0) & (other[:, 1:] > 0)
                newest = np.where(both, newest + other, 0)
            if len(self._groups) == j:
                self._groups.append([])
            self._groups[j].append(newest)
            falls.append(self._fall(j))
        return min(filter(None, falls), key=lambda found: found[0], default=(0.0, None))[1]

    def _array(self, counts: Counts) -> IntArray:
        """The counts of all problems so far, 0 for those that this look has not."""
        new = [id for id in counts if id not in self._places]
        self._places |= {id: len(self._places) + i for i, id in enumerate(new)}
        for groups in self._groups if new else ():
            groups[:] = [np.pad(group, ((0, len(new)), (0, 0))) for group in groups]
        array = np.zeros((len(self._places), 2), np.int64)
        for id, each in counts.items():
            array[self._places[id]] = each
        return array

    def _fall(self, j: int) -> tuple[float, Fall] | None:
        """The clearest fall from an earlier group of 2^j looks to the newest, if it passes its level, after the
        logarithm of its probability."""
        *earlier, newest = self._groups[j]
        if not earlier:
            return None
        falls, scores = _standardised(np.stack(earlier), newest, self.k)
        clearest = {int(by.argmax()) for by in (np.where(scores >= _SCREEN, falls, -1), scores)}
        tried = [(log_chance(earlier[i], newest, self.k), i) for i in clearest if scores[i] >= _SCREEN]
        log_p, place = min(tried, default=(0.0, 0))
        b = len(earlier) + 1
        if log_p > math.log(self._alpha) - (j + 1) * math.log(2) - math.log(b) - 2 * math.log(b - 1):
            return None
        size = 1 << j
        before, after = (self._steps[i * size : (i + 1) * size] for i in (place, b - 1))
        was, now = (_mean(group, self.k) for group in (earlier[place], newest))
        return log_p, Fall(self.k, was, now, (before[0], before[-1]), (after[0], after[-1]))


def _mean(counts: IntArray, k: int) -> float:
    c, n = counts[counts[:, 1] >= k].T
    return float(pass_at_k(n, c, k).mean())


def _standardised(earlier: IntArray, newest: IntArray, k: int) -> tuple[FloatArray, FloatArray]:
    """The fall of pass@k from each earlier group [groups, problems, 2] to the newest [problems, 2], summed over the
    problems with k samples in both, and the same in standard errors."""
    fall, variance = np.zeros(len(earlier)), np.zeros(len(earlier))
    for n, m in {*zip(earlier[..., 1].ravel().tolist(), np.tile(newest[:, 1], len(earlier)).tolist(), strict=True)}:
        if min(n, m) < k:
            continue
        counted = (earlier[..., 1] == n) & (newest[:, 1] == m)
        c, d = np.where(counted, earlier[..., 0], 0), np.where(counted, newest[:, 0], 0)
        before, after = (pass_at_k(size, np.arange(size + 1), k) for size in (n, m))
        fall += np.where(counted, before[c] - after[d], 0).sum(-1)
        variance += np.where(counted, _variances(n, m, k)[c + d], 0).sum(-1)
    return fall, np.divide(fall, np.sqrt(variance), out=np.zeros(len(fall)), where=variance > 0)


@lru_cache(256)
def _variances(n: int, m: int, k: int) -> FloatArray:
    """The variance of the fall by how many of n + m samples are correct."""
    dealt = (_dealt(correct, n, m, k) for correct in range(n + m + 1))
    return np.array([float(chances @ falls**2) for chances, falls in dealt])


def log_chance(earlier: IntArray, newest: IntArray, k: int) -> float:
    """The logarithm of a bound of the probability that samples dealt at random show such a fall of pass@k or more; the
    correct and all samples of each problem, [problems, 2]."""
    falls, scores = _standardised(earlier[None], newest, k)
    fall, score = float(falls[0]), float(scores[0])
    if score <= 0:
        return 0.0
    tilts = _TILTS * score * score / fall
    log_means = -tilts * fall
    enough = (earlier[:, 1] >= k) & (newest[:, 1] >= k)
    pairs = Counter((c + d, n, m) for c, n, d, m in np.hstack([earlier, newest])[enough].tolist())
    for (correct, n, m), times in pairs.items():
        chances, falls = _dealt(correct, n, m, k)
        most = falls.max()
        log_means += times * (np.log(np.exp(tilts[:, None] * (falls - most)) @ chances) + tilts * most)
    return min(0.0, float(log_means.min()))


@lru_cache(1 << 14)
def _dealt(correct: int, n: int, m: int, k: int) -> tuple[FloatArray, FloatArray]:
    """If n of n + m samples, `correct` of which are right, are dealt to the earlier looks: the chance of each possible
    number of correct ones among them, and the fall of pass@k to the others."""
    got = np.arange(max(0, correct - m), min(n, correct) + 1)
    log_ways = _log_ways(n)[got] + _log_ways(m)[correct - got]
    chances = np.exp(log_ways - log_ways.max())
    chances /= chances.sum()
    return chances, pass_at_k(n, got, k) - pass_at_k(m, correct - got, k)


@lru_cache(256)
def _log_ways(n: int) -> FloatArray:
    """The logarithms of C(n, 0) … C(n, n)."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return factorials[n] - factorials - factorials[::-1]
