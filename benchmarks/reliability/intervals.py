"""How often 95 % intervals hold the truth, by simulation: `python -m benchmarks.reliability.intervals [--trials 2000]`.

Problems are drawn from populations whose pass@k is known, samples of each problem from its chance. Prints the lowest
and the mean coverage over the populations of a row, in percent, for means (`dph eval`, `verify`, `passk` and a report
of one run), paired differences, differences over several training runs, and keep and exploration rates. The shares of
a single sample are computed exactly.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dph.measure.intervals import FloatArray, difference_over_runs, mean_interval, ratio_interval
from dph.measure.passk import pass_at_k
from dph.types import Interval

PROBLEMS = (4, 8, 16, 30, 200, 2000)
METRICS = {"pass@1 of 8": (8, 1), "pass@8 of 8": (8, 8), "pass@8 of 32": (32, 8)}
POPULATIONS: dict[str, dict[str, Callable[[Generator, int], FloatArray]]] = {
    "near 0": {
        "Beta(0.1, 4)": lambda rng, count: rng.beta(0.1, 4, count),
        "Beta(0.5, 20)": lambda rng, count: rng.beta(0.5, 20, count),
        "1 % solved": lambda rng, count: np.where(rng.random(count) < 0.01, 0.95, 0.0),
    },
    "between": {
        "uniform": lambda rng, count: rng.random(count),
        "Beta(4, 4)": lambda rng, count: rng.beta(4, 4, count),
        "two kinds": lambda rng, count: np.where(rng.random(count) < 0.3, 0.02, 0.97),
    },
    "near 1": {
        "Beta(4, 0.1)": lambda rng, count: rng.beta(4, 0.1, count),
        "Beta(20, 0.5)": lambda rng, count: rng.beta(20, 0.5, count),
        "1 % unsolved": lambda rng, count: np.where(rng.random(count) < 0.01, 0.05, 1.0),
    },
}
_DRAWN = 1_000_000
"""Problems by which the truth is known."""
SHIFT, SPREAD = -0.5, 0.4
"""A policy's log-odds against the base's, and the spread of a run's log-odds: of all problems, and of each."""


def counts(rng: Generator, chances: FloatArray, n: int, unequal: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples and correct ones of each problem; unequal: half of the problems have three times as many samples."""
    samples = np.where(np.arange(chances.shape[-1]) % 2, 3 * n, n) if unequal else np.full(chances.shape[-1], n)
    return samples, rng.binomial(samples, chances)


def shifted(chances: FloatArray, by: float | FloatArray) -> FloatArray:
    """Chances whose log-odds are moved."""
    odds = np.log(np.clip(chances, 1e-9, 1)) - np.log(np.clip(1 - chances, 1e-9, 1))
    return 1 / (1 + np.exp(-(odds + by)))


def solved(chances: FloatArray, k: int) -> FloatArray:
    return 1 - (1 - chances) ** k


def of_means(trials: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of means and paired differences: coverage over populations and metrics."""
    for problems in PROBLEMS:
        rng, size = np.random.default_rng(problems), min(trials, 2_000_000 // problems)
        row = [str(problems)]
        for what in ("mean", "difference"):
            for near in POPULATIONS.values():
                found = []
                for draw in near.values():
                    every = draw(rng, _DRAWN)
                    for n, k in METRICS.values():
                        truth = solved(every, k).mean()
                        change = solved(shifted(every, SHIFT), k).mean() - truth
                        hits = 0
                        for trial in range(size):
                            chances = draw(rng, problems)
                            samples, c = counts(rng, chances, n, trial % 4 == 3)
                            values = pass_at_k(samples, c, k)
                            if what == "mean":
                                hits += _holds(mean_interval(values), truth)
                            else:
                                other = pass_at_k(n, rng.binomial(n, shifted(chances, SHIFT)), k)
                                hits += _holds(mean_interval(other - values, -1.0, 1.0), change)
                        found.append(hits / size)
                row.append(_cell(found))
        yield tuple(row)


def of_shares() -> Iterator[tuple[str, ...]]:
    """Rows of the table of one sample a problem, computed exactly: the lowest coverage over rates, and the interval
    if all problems are right."""
    for problems in PROBLEMS:
        right = np.arange(problems + 1)
        found = [mean_interval(np.repeat([1.0, 0.0], [c, problems - c])) for c in right]
        low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
        rates = np.logspace(-5, math.log10(0.5), 300)[:, None]
        ways = [math.lgamma(problems + 1) - math.lgamma(c + 1) - math.lgamma(problems - c + 1) for c in right]
        chances = np.exp(ways + right * np.log(rates) + (problems - right) * np.log1p(-rates))
        covered = (chances * ((low <= rates) & (rates <= high))).sum(-1)
        yield str(problems), f"{100 * covered.min():.1f}", f"{100 * covered.mean():.1f}", f"{100 * low[-1]:.1f}–100.0"


def of_runs(trials: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of differences between two sides of several training runs, over all populations."""
    every = {name: draw for near in POPULATIONS.values() for name, draw in near.items()}
    for runs in ((1, 1), (1, 3), (2, 2), (3, 3), (5, 5)):
        row = [f"{runs[0]} and {runs[1]}"]
        for problems in (8, 30, 200):
            found = []
            for place, draw in enumerate(every.values()):
                for n, k in ((8, 1), (8, 8)):
                    rng = np.random.default_rng([place, *runs, problems, k])
                    hits = sum(_run_trial(rng, draw, runs, problems, n, k) for _ in range(trials))
                    found.append(hits / trials)
            row.append(_cell(found))
        yield tuple(row)


def _run_trial(rng: Generator, draw: Callable, runs: tuple[int, int], problems: int, n: int, k: int) -> bool:
    """Whether an interval holds the difference of two sides. A side of one run is that run; of more, all such runs."""
    chances, population, sides, truth = draw(rng, problems), draw(rng, 20_000), [], 0.0
    for sign, count, shift in ((-1, runs[0], 0.0), (1, runs[1], SHIFT)):
        own = SPREAD * rng.normal(size=(count, 1))
        policies = shifted(chances, shift + own + SPREAD * rng.normal(size=(count, problems)))
        sides.append(pass_at_k(n, rng.binomial(n, policies), k))
        drawn = float(own[0, 0]) if count == 1 else SPREAD * rng.normal(size=20_000)
        truth += sign * solved(shifted(population, shift + drawn + SPREAD * rng.normal(size=20_000)), k).mean()
    return _holds(difference_over_runs(sides[1], sides[0]), truth)


def of_rates(trials: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table of keep and exploration rates at 8 of 32 samples, where five problems or more count."""
    n, k = 32, 8
    for problems in (16, 30, 200, 2000):
        rng, size, found = np.random.default_rng(problems), min(trials, 1_000_000 // problems), ([], [])
        for near in POPULATIONS.values():
            for draw in near.values():
                every = draw(rng, _DRAWN)
                base, policy = solved(every, k), solved(shifted(every, SHIFT), k)
                belows = base, 1 - base
                hits, tried = np.zeros(2), np.zeros(2)
                for _ in range(size):
                    chances = draw(rng, problems)
                    old, new = (pass_at_k(n, rng.binomial(n, p), k) for p in (chances, shifted(chances, SHIFT)))
                    for number, below in enumerate((old, 1 - old)):
                        if below.sum() >= 5:
                            truth = float((belows[number] * policy).sum() / belows[number].sum())
                            tried[number] += 1
                            hits[number] += _holds(ratio_interval(below * new, below), truth)
                for number in range(2):
                    if tried[number] >= size / 2:
                        found[number].append(hits[number] / tried[number])
        yield str(problems), *map(_cell, found)


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-4 <= truth <= interval.high + 1e-4  # the truth is simulated too


def _cell(found: Sequence[float]) -> str:
    return f"{100 * min(found):.1f} / {100 * float(np.mean(found)):.1f}" if found else "–"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args(arguments).trials
    near = list(POPULATIONS)
    tables = (
        (["problems", "lowest", "mean", "all right"], of_shares()),
        (["problems", *near, *(f"difference, {name}" for name in near)], of_means(trials)),
        (["runs", "8 problems", "30 problems", "200 problems"], of_runs(max(1, trials // 10))),
        (["problems", "keep@8", "explore@8"], of_rates(trials)),
    )
    for columns, rows in tables:
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)
        print()


if __name__ == "__main__":
    main()
