"""Problems that one set of judged samples solves and another does not, also for unequal numbers of samples.

More samples solve more problems: of one model, 32 samples solve problems that 4 do not. Both sides of a problem are
therefore compared at m samples, as many as the side with fewer has, by exact expectation over the subsets of the other
side: C(n − c, m) / C(n, m) is the chance that m of n samples with c correct ones miss the problem. With equal numbers
these chances are 0 or 1, and lost and gained problems are counts.

Two draws from one model also lose problems to each other, for equal numbers of samples as well, so that the share of
lost problems counts only those above chance.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.measure.passk import FloatArray

IntArray = NDArray[np.int64]
_LARGE = 1000
"""From so many lost and gained problems on, the sign test uses the normal limit."""
_ONE_SIDED = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Losses:
    """BEFORE against AFTER, by problem."""

    m: IntArray
    """[problems] Samples at which both sides are compared."""
    solved: FloatArray
    """[problems] The chance that m samples of BEFORE solve it."""
    lost: FloatArray
    """[problems] The chance that m samples of BEFORE solve it and m of AFTER do not."""
    gained: FloatArray
    """[problems] The chance of the opposite."""
    by_chance: float
    """Problems that would be lost, and gained, if both sides were samples of one model: the expectation over all ways
    to divide a problem's samples between the sides."""
    sign_p: float
    """Two-sided p-value of the exact sign test of lost against gained problems; for unequal numbers of samples of the
    same test for expectations. Their difference then has the larger of two variances: that of samples of one model,
    and the sum of its squares over problems, which is the number of lost and gained ones if these are whole."""
    share: float
    """The lost problems above what chance alone stays below in 95 % of cases / problems that BEFORE solves; 0 if it
    solves none. Chance alone loses `by_chance` problems between two draws from one model."""


def losses(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> Losses:
    """Compare two sides, each given by the numbers of all and of correct samples, n and c [problems]; n ≥ 1."""
    (nb, cb), (na, ca) = (tuple(np.asarray(part, np.int64) for part in side) for side in (before, after))
    m = np.minimum(nb, na)
    missed = missed_among(nb, cb, m), missed_among(na, ca, m)
    solved = 1 - missed[0]
    lost, gained = solved * missed[1], missed[0] * (1 - missed[1])
    chances = missed_among(nb + na, cb + ca, m) - missed_among(nb + na, cb + ca, 2 * m)
    if (nb == na).all():  # a problem is lost or not
        of_lost, test = float((chances * (1 - chances)).sum()), sign_test(round(lost.sum()), round(gained.sum()))
    else:
        of_lost, of_difference = _variances(nb, na, cb + ca)
        test = _sign_test_of(float((lost - gained).sum()), max(of_difference, float(((lost - gained) ** 2).sum())))
    by_chance = float(chances.sum())
    excess = max(0.0, float(lost.sum()) - by_chance - _ONE_SIDED * math.sqrt(of_lost))
    share = excess / float(solved.sum()) if solved.any() else 0.0
    return Losses(m, solved, lost, gained, by_chance, test, share)


def missed_among(n: ArrayLike, c: ArrayLike, m: ArrayLike) -> FloatArray:
    """The chance that m of a problem's n samples, drawn without replacement, hold none of the c correct ones:
    C(n − c, m) / C(n, m), for every problem's own m ≤ n. Exactly 0 or 1 for m = n."""
    total, correct, drawn = np.broadcast_arrays(*(np.asarray(part, np.float64) for part in (n, c, m)))
    missed = np.ones(total.shape)
    for i in range(int(drawn.max(initial=0))):
        left = np.maximum(total - i, 1)
        # passes through exactly 0 once the wrong samples are used up, and stays there
        missed *= np.where(i < drawn, (total - correct - i) / left, 1.0)
    return missed


def right_among(n: ArrayLike, c: ArrayLike, m: ArrayLike, j: ArrayLike) -> FloatArray:
    """The chance that exactly j of m samples are correct, which are drawn without replacement from n with c correct
    ones: hypergeometric."""
    n, c, m, j = np.broadcast_arrays(*(np.asarray(part, np.int64) for part in (n, c, m, j)))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(n.max(initial=0)) + 1)))])

    def ways(of: IntArray, some: IntArray) -> FloatArray:
        some = np.clip(some, 0, of)
        return logs[of] - logs[some] - logs[of - some]

    possible = (j >= 0) & (j <= c) & (m - j >= 0) & (m - j <= n - c)
    return np.where(possible, np.exp(ways(c, j) + ways(n - c, m - j) - ways(n, m)), 0.0)


def cover_among(n: ArrayLike, c: ArrayLike, m: ArrayLike, share: float) -> FloatArray:
    """The chance that at least a share τ of m samples is correct, which are drawn without replacement from n with c
    correct ones, for every problem's own m ≤ n: cover@τ at m samples. For m = n it is 1 or 0."""
    n, c, m = np.broadcast_arrays(*(np.asarray(part, np.int64) for part in (n, c, m)))
    covered, fewest = (c >= share * n - 1e-9).astype(np.float64), np.ceil(share * m - 1e-9)
    if (some := m < n).any():
        n, c, m, fewest = n[some], c[some], m[some], fewest[some]
        every = (np.where(j >= fewest, right_among(n, c, m, j), 0.0) for j in range(int(m.max()) + 1))
        covered[some] = np.minimum(1.0, sum(every, np.zeros(len(n))))
    return covered


def _variances(nb: IntArray, na: IntArray, correct: IntArray) -> tuple[float, float]:
    """The variances of lost, and of lost − gained, summed over problems, if both sides are samples of one model: the
    side with fewer samples, m, has j of a problem's correct ones by a hypergeometric draw, the other one the rest."""
    m, more, before = np.minimum(nb, na), np.maximum(nb, na), nb <= na
    moments = np.zeros((4, len(m)))
    for j in range(int(m.max(initial=0)) + 1):
        chance = right_among(nb + na, correct, m, j)
        missed = right_among(more, np.clip(correct - j, 0, more), m, 0)  # by the side with more samples
        lost = np.where(before, missed if j else 0.0, 0.0 if j else 1 - missed)
        gained = np.where(before, 0.0 if j else 1 - missed, missed if j else 0.0)
        moments += chance * np.stack([lost, lost**2, lost - gained, (lost - gained) ** 2])
    mean, square, difference, its_square = moments
    return float((square - mean**2).sum()), float((its_square - difference**2).sum())


def sign_test(one: int, other: int) -> float:
    """Exact two-sided p-value of two numbers if each case falls on either side with the same probability."""
    total, fewer = one + other, min(one, other)
    if total > _LARGE:  # the normal limit, with its correction for continuity
        return math.erfc(max(0.0, abs(one - other) - 1) / math.sqrt(2 * total))
    return min(1.0, 2 * sum(math.comb(total, i) for i in range(fewer + 1)) / 2**total)


def _sign_test_of(difference: float, variance: float) -> float:
    """The sign test of a difference that is not a whole number: its variance takes the place of the number of cases,
    which it is for whole ones, and the incomplete beta function that of the sum of binomial coefficients."""
    apart = abs(difference)
    total = max(variance, apart)
    if total > _LARGE:
        return math.erfc(max(0.0, apart - 1) / math.sqrt(2 * total))
    fewer = (total - apart) / 2
    return min(1.0, 2 * _beta_share(total - fewer, fewer + 1))


def _beta_share(a: float, b: float, terms: int = 300) -> float:
    """The incomplete beta function I at ½, for a ≥ b − 1 ≥ 0 and a + b ≤ 1001, by its continued fraction (DLMF
    8.17.22), from its last term."""
    if a < 1e-9:
        return 1.0
    value = 1.0
    for i in range(terms, 0, -1):
        half = i // 2
        if i % 2:
            factor = -(a + half) * (a + b + half) / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            factor = half * (b - half) / ((a + 2 * half - 1) * (a + 2 * half))
        value = 1 + factor / 2 / value
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(-(a + b) * math.log(2) - math.log(a) - log_beta) / value
