"""A simultaneous 95 % band of the change of pass@k over every k, and what follows from it: the k at which AFTER is
above BEFORE, those at which it is below, and a set that holds the first k with a loss. Only numpy.

An interval of one k holds the truth at that k with 95 %; of 128 such intervals, some miss. A band holds the truth at
all k at once, so that "above for k = 1 to 10, below from 61" is one statement with one error of 5 %.

The standardised estimate at each k is a point u_k on a sphere, and over k these points are a curve of length κ. The
chance that the largest of all standardised errors exceeds c is at most

    P(|t_ν| > c) + κ/π · (1 + c²/ν)^(−ν/2)

(Hotelling's tube formula as a bound: Naiman 1986, Johansen and Johnstone 1990, Sun and Loader 1994; exact for normal
values, for which ν is the degrees of freedom of the spread). `tube_quantile` is the c at which it is 5 %. So nothing is
drawn, the band is the same in every run, and for a single k it is the interval of `dph.measure.intervals`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.measure.intervals import FloatArray

LEVEL = 0.95
SHOWN = 128
"""The band is listed for every k up to here, and from there on for about as many to each power of two."""
Counts = tuple[ArrayLike, ArrayLike]
"""The numbers of all and of correct samples, n and c [problems]."""
Region = tuple[int, int]
"""The first and the last k of a region without gaps."""


@dataclass(frozen=True, slots=True)
class Band:
    """The change of pass@k, AFTER − BEFORE, for all k from 1 to `k` at once, with the probability `level`."""

    k: int
    """The largest k: the fewest samples of a problem on either side."""
    level: float
    runs: tuple[int, int]
    """Training runs of BEFORE and of AFTER. With several on a side, the band is over runs and problems."""
    problems: int
    ks: list[int]
    """The k that are listed: all of them up to `SHOWN`, then so many to each power of two."""
    estimate: list[float]
    low: list[float]
    high: list[float]
    above: list[Region]
    """Where the whole band is above 0, over all k, also those that are not listed."""
    below: list[Region]
    undecided: list[Region]
    first_loss: tuple[int | None, int | None]
    """The set that holds the first k at which AFTER is truly below BEFORE: from … to. The second is None if the band
    leaves open whether there is a loss at any k; both are None if there is none at any k."""


def band(before: Sequence[Counts], after: Sequence[Counts], level: float = LEVEL) -> Band:
    """The band of the mean of AFTER's runs minus the mean of BEFORE's, for k = 1 … the fewest samples of a problem.

    before, after: for each training run of a side, n and c [problems], of the same problems in the same order. With one
    run a side the band is over problems and holds for these very models. With several, the spread of runs is added as
    `dph.measure.intervals.widened_by_runs` does. Raises ValueError for sides of different problems.
    """
    sides = [[_arrays(run) for run in side] for side in (before, after)]
    sizes = {len(n) for side in sides for n, _ in side}
    if not all(sides) or len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"a band needs runs of the same problems on both sides, but they have {sorted(sizes)}")
    largest = min(int(n.min()) for side in sides for n, _ in side)
    spread = _Spread(largest, [len(side) for side in sides], sizes.pop())
    for curves in zip(*(_curves(side, largest) for side in sides), strict=True):
        spread.add(curves[1], curves[0])
    estimate, low, high = spread.band(1 - level)
    shown = _shown(largest)
    places = np.array(shown) - 1
    return Band(
        k=largest,
        level=level,
        runs=(len(before), len(after)),
        problems=spread.problems,
        ks=shown,
        estimate=estimate[places].tolist(),
        low=low[places].tolist(),
        high=high[places].tolist(),
        above=_regions(low > 0),
        below=_regions(high < 0),
        undecided=_regions((low <= 0) & (high >= 0)),
        first_loss=_first_loss(low, high),
    )


def tube_quantile(length: float, df: float, alpha: float = 1 - LEVEL) -> float:
    """The c at which P(|t| > c) + length/π · (1 + c²/df)^(−df/2) is alpha, for Student's t with df ≥ 1 degrees of
    freedom, to about five digits; for the length 0 it is Student's quantile of 1 − alpha/2."""
    angles, outside, tube = _tails(round(float(df), 2))
    chance = outside + length / math.pi * tube
    return math.sqrt(df) * math.tan(float(np.interp(-alpha, -chance, angles)))


@lru_cache(256)
def _tails(df: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Angles a = atan(c/√df), P(|t| > c), and (1 + c²/df)^(−df/2) = cos(a)^df; the density in a is cos^(df − 1)."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (df - 1.0)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, 1 - mass / mass[-1], np.clip(np.cos(angles), 0, 1) ** df


class _Spread:
    """Gathers, over k, the estimate and its spread over problems and over runs."""

    def __init__(self, largest: int, runs: Sequence[int], problems: int) -> None:
        self.problems, self._runs = problems, runs
        self._estimate, self._centre, self._error = np.zeros((3, largest))
        self._share = np.ones(largest)
        """Of the variance over problems, the part that is not the residual of runs."""
        self._of_runs = np.zeros((2, largest))
        """The variance of each side's mean over runs, 0 for one run."""
        self._paths = [_Path() for _ in range(4)]
        """Of problems, of the runs of both sides together, and of the runs of each side."""
        self._filled = 0

    def add(self, new: FloatArray, old: FloatArray) -> None:
        """pass@k [runs, problems] of both sides for the next k."""
        k = self._filled
        self._filled += 1
        values = new.mean(0) - old.mean(0)
        count = self.problems + 2  # with the imaginary problems at −1 and 1, whose mean is 0
        total = float(values.sum())
        self._estimate[k], self._centre[k] = total / self.problems, total / count
        square = float(values @ values) + 2.0 - count * self._centre[k] ** 2
        self._error[k] = math.sqrt(square / (count - 1) / count)
        self._paths[0].go(values - self._estimate[k])
        if max(self._runs) > 1:
            self._add_runs(k, (new, old), float(values.var(ddof=1)) if self.problems > 1 else 0.0)

    def _add_runs(self, k: int, sides: tuple[FloatArray, FloatArray], spread: float) -> None:
        residual, steps = 0.0, []
        for place, values in enumerate(sides):
            runs = len(values)
            if runs < 2:
                continue
            means = values.mean(1)
            rest = values - means[:, None] - values.mean(0) + means.mean()
            residual += float((rest**2).sum()) / ((runs - 1) * max(1, self.problems - 1) * runs)
            self._of_runs[place, k] = float(means.var(ddof=1)) / runs
            steps.append((-1) ** place * (means - means.mean()) / math.sqrt(runs * (runs - 1)))
            self._paths[2 + place].go(steps[-1])
        self._paths[1].go(np.concatenate(steps))
        self._share[k] = max(0.0, 1.0 - residual / spread) if spread > 0 else 0.0

    def band(self, alpha: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The estimate, and the lower and the upper end at each k."""
        reach = tube_quantile(self._paths[0].length, max(1.0, self.problems - 1), alpha) * self._error
        low = np.maximum(-1.0, np.minimum(self._estimate, self._centre - reach))
        high = np.minimum(1.0, np.maximum(self._estimate, self._centre + reach))
        if max(self._runs) == 1:
            return self._estimate, low, high
        beyond = self._reach_of_runs(alpha)

        def widened(distance: FloatArray) -> FloatArray:
            return np.maximum(distance, np.hypot(np.sqrt(self._share) * distance, beyond))

        low, high = self._estimate - widened(self._estimate - low), self._estimate + widened(high - self._estimate)
        return self._estimate, np.maximum(-1.0, low), np.minimum(1.0, high)

    def _reach_of_runs(self, alpha: float) -> FloatArray:
        """The half-width for the choice of runs, as `widened_by_runs` has for one k."""
        several = [place for place, runs in enumerate(reversed(self._runs)) if runs > 1]  # new, then old
        degrees = {place: float(self._runs[1 - place] - 1) for place in several}
        errors = self._of_runs[several]
        if len(set(degrees.values())) == 1:
            squares, total = (errors**2).sum(0), errors.sum(0)
            welch = np.divide(total**2, squares, out=np.ones(len(total)), where=squares > 0) * degrees[several[0]]
            length = self._paths[1].length
            quantiles = np.array([tube_quantile(length, float(df), alpha) for df in np.round(welch, 2)])
            return quantiles * np.sqrt(total)
        reaches = [
            tube_quantile(self._paths[2 + place].length, degrees[place], alpha) * np.sqrt(self._of_runs[place])
            for place in several
        ]
        return np.hypot(*reaches) if len(reaches) > 1 else reaches[0]


class _Path:
    """The length of a curve on the unit sphere, by arcs between directions."""

    def __init__(self) -> None:
        self.length = 0.0
        self._last: FloatArray | None = None

    def go(self, to: FloatArray) -> None:
        size = math.sqrt(float(to @ to))
        if size <= 1e-12:
            return  # no direction: all problems agree
        to = to / size
        if self._last is not None:
            apart = self._last - to
            self.length += 2 * math.asin(min(1.0, math.sqrt(float(apart @ apart)) / 2))
        self._last = to


def _arrays(run: Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n, c = (np.asarray(part, np.float64) for part in run)
    if n.shape != c.shape or n.ndim != 1 or np.any(n < 1) or np.any(c < 0) or np.any(c > n):
        raise ValueError("counts must be two lists of one length with 0 ≤ c ≤ n and n ≥ 1")
    return n, c


def _curves(runs: Sequence[tuple[FloatArray, FloatArray]], largest: int) -> Iterator[FloatArray]:
    """pass@k [runs, problems] for k = 1, 2 … (`dph.measure.passk.pass_at_k`), each from the one before."""
    n, c = (np.stack(parts) for parts in zip(*runs, strict=True))
    missed = np.ones(n.shape)
    for i in range(largest):
        missed = missed * ((n - c - i) / (n - i))  # passes through exactly 0 once the wrong samples are used up
        yield 1.0 - missed


def _shown(largest: int) -> list[int]:
    """Every k up to `SHOWN`, then `SHOWN` of them to each power of two, and the largest."""
    steps = math.ceil(SHOWN * math.log2(max(1.0, largest / SHOWN)))
    beyond = {min(largest, round(SHOWN * 2 ** (i / SHOWN))) for i in range(1, steps + 1)}
    return sorted({*range(1, min(SHOWN, largest) + 1), *beyond})


def _regions(holds: NDArray[np.bool_]) -> list[Region]:
    """The first and the last k of each stretch in which something holds; holds: [largest k], from k = 1 on."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8)))
    return [(int(first) + 1, int(last)) for first, last in edges.reshape(-1, 2)]


def _first_loss(low: FloatArray, high: FloatArray) -> tuple[int | None, int | None]:
    """From the first k at which the band allows a loss to the first at which it allows nothing else."""
    possible, sure = np.flatnonzero(low < 0), np.flatnonzero(high < 0)
    return (
        int(possible[0]) + 1 if possible.size else None,
        int(sure[0]) + 1 if sure.size else None,
    )
