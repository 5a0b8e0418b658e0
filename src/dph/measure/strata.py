"""Where pass@k is lost: the change from one set of judged samples to another, by how often the first one solves a
problem. Only numpy.

The class of a problem and its level before must come from different samples. A problem that was solved in 9 of 10
samples by luck is expected to be solved less often in the next ones, so that the highest class would seem to lose, and
the lowest one to gain, although nothing changed. BEFORE's samples of a problem are therefore divided in two halves:
one half says the class, the other one the level, and the other way round. The mean over all divisions is computed
exactly (hypergeometric), so that nothing is drawn and no sample is preferred.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.measure.intervals import FloatArray, mean_interval, ratio_interval, widened_by_runs
from dph.measure.losses import right_among
from dph.measure.passk import pass_at_k, powers_of_two
from dph.types import Interval

CLASSES = ((0.0, 0.0), (0.0, 0.25), (0.25, 0.5), (0.5, 0.8), (0.8, 1.0))
"""The classes, by the share of correct samples: above the lower end, up to the upper one; the first holds the problems
without a correct sample."""
FEWEST = 8
"""With fewer samples of a problem before, a half has fewer than four, which do not tell the classes apart."""
FEWEST_PROBLEMS = 5
"""Means over fewer problems, by expectation, are not shown."""
_RANGE = (-1.0, 1.0)
"""Of a change of a share."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """The change of pass@k on the problems that BEFORE solves about equally often."""

    low: float
    """The class: BEFORE's share of correct samples is above this …"""
    high: float
    """… and at most this; both are 0 for problems without a correct sample."""
    k: int
    problems: float
    """Share of the problems that are expected in the class."""
    before: float
    """pass@k of BEFORE in the class; NaN if no problem can be in it."""
    after: float
    change: Interval
    """AFTER − BEFORE in the class; NaN if no problem can be in it."""
    part: Interval
    """The class's part in AFTER − BEFORE over all problems; the parts of all classes add up to that difference."""

    @property
    def title(self) -> str:
        """The class in percent, as "25–50 %"."""
        return f"{100 * self.low:g}–{100 * self.high:g} %" if self.high else "none"


def largest_k(before: ArrayLike, *after: ArrayLike) -> int:
    """The largest power of two k for which every half of BEFORE's samples, and AFTER's samples, of every problem hold k
    samples; 0 if BEFORE has fewer than `FEWEST` samples of a problem. Each argument: numbers of samples, [problems]."""
    fewest = int(np.min(before)) if np.size(before) else 0
    return powers_of_two(min([fewest // 2, *(int(np.min(n)) for n in after)]))[-1] if fewest >= FEWEST else 0


def strata(
    before: tuple[ArrayLike, ArrayLike],
    after: Sequence[tuple[ArrayLike, ArrayLike]],
    k: int,
    classes: Sequence[tuple[float, float]] = CLASSES,
) -> list[Stratum]:
    """The change of pass@k in each class of problems, with intervals over problems and, for several runs, over runs.

    Args:
        before: the numbers of all and of correct samples of BEFORE, n and c [problems].
        after: the same of one or several runs of AFTER, on the same problems in the same order.
        k: at most half of the samples of each problem before, and at most those after.
        classes: lower and upper ends, see `CLASSES`. They must cover all shares from 0 to 1.

    Raises ValueError for a k above these numbers, which `largest_k` respects.
    """
    n, c = (np.asarray(part, np.int64) for part in before)
    if k < 1 or k > int(n.min()) // 2:
        raise ValueError(f"k = {k} must lie between 1 and half of the {n.min()} samples of a problem")
    runs = np.stack([pass_at_k(*side, k) for side in after])
    weight, level = np.zeros((2, len(classes), len(n)))
    for odd in (0, 1):  # of 9 samples, 4 say the class and 5 the level, or the other way round
        for chance, share, rest in _divided(n, c, (n + odd) // 2, k):
            place = np.clip(np.searchsorted([high for _, high in classes], share - 1e-12), 0, len(classes) - 1)
            np.add.at(weight, (place, np.arange(len(n))), chance / 2)
            np.add.at(level, (place, np.arange(len(n))), chance * rest / 2)
    return [_stratum(low, high, k, w, lv, runs) for (low, high), w, lv in zip(classes, weight, level, strict=True)]


def _divided(
    n: NDArray[np.int64], c: NDArray[np.int64], first: NDArray[np.int64], k: int
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """For every number of correct samples among the first ones of each problem: its chance, their share of correct
    samples, and pass@k of the other samples, each [problems]."""
    for j in range(int(first.max()) + 1):
        chance = right_among(n, c, first, j)
        possible = chance > 0
        rest = np.where(possible, c - j, 0)
        yield chance, np.minimum(j / first, 1.0), np.where(possible, pass_at_k(n - first, rest, k), 0.0)


def _stratum(low: float, high: float, k: int, weight: FloatArray, level: FloatArray, runs: FloatArray) -> Stratum:
    """weight, level: [problems] the chance of the class, and BEFORE's level times it; runs: [runs, problems] of
    AFTER."""
    gaps = weight * runs - level
    part = widened_by_runs(mean_interval(gaps.mean(0), *_RANGE), [gaps], _RANGE)
    total = float(weight.sum())
    if total <= 0:
        nothing = Interval(np.nan, np.nan, np.nan, part.level)
        return Stratum(low, high, k, 0.0, np.nan, np.nan, nothing, part)
    change = ratio_interval(gaps.mean(0), weight, *_RANGE)
    # to first order the change is the mean of these over problems, and so it is for each run
    linear = change.estimate + (gaps - weight * change.estimate) / weight.mean()
    change = widened_by_runs(change, [linear], _RANGE)
    was, now = float(level.sum() / total), float((weight * runs.mean(0)).sum() / total)
    return Stratum(low, high, k, total / len(weight), was, now, change, part)
