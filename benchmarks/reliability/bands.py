"""How often the band over all k, and the set of the first k with a loss, hold the truth, by simulation:
`python -m benchmarks.reliability.bands [--trials 400]`.

A problem is of a type with a chance of success before and one after, so that the change of pass@k is known exactly.
Prints, in percent, for 4, 16 and 128 samples of each problem, how often the interval of a single k (the mean over four
k), the band at all k at once, and the set of the first k with a loss hold the truth, and how often both an early gain
and a later loss are found.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dph.measure.bands import Band, band
from dph.measure.intervals import FloatArray, mean_interval
from dph.measure.passk import pass_at_k

PROBLEMS, SAMPLES = (30, 200, 2000), (4, 16, 128)
_MANY = np.random.default_rng(0).beta(0.3, 0.9, 2000)


@dataclass(frozen=True)
class Population:
    """Types of problems: how frequent each is, and its chances before and after."""

    name: str
    weights: FloatArray
    before: FloatArray
    after: FloatArray

    def change(self, largest: int) -> FloatArray:
        """The true change of pass@k for k = 1 … largest."""
        k = np.arange(1, largest + 1)[:, None]
        return ((1 - self.before) ** k - (1 - self.after) ** k) @ self.weights


def _population(name: str, *types: tuple[float, float, float]) -> Population:
    return Population(name, *map(np.array, zip(*types, strict=True)))


def _of_many(name: str, after: FloatArray) -> Population:
    return Population(name, np.full(len(_MANY), 1 / len(_MANY)), _MANY, after)


POPULATIONS = (
    _population("one kind, unchanged", (1.0, 0.1, 0.1)),
    _population("rare successes, unchanged", (0.9, 0.001, 0.001), (0.1, 0.02, 0.02)),
    _population("rare successes, fewer", (0.9, 0.002, 0.0005), (0.1, 0.02, 0.03)),
    _of_many("many kinds, unchanged", _MANY),
    _population("gain, then loss", (0.7, 0.15, 0.3), (0.3, 0.02, 0.0002)),
    _of_many("sharpened", np.where(_MANY < 0.1, 0.3 * _MANY, _MANY ** (1 / 3))),
)


@dataclass
class Held:
    """Trials, and how often each statement was true."""

    trials: int = 0
    single: NDArray[np.int64] | int = 0
    band: int = 0
    first_loss: int = 0
    crossing: int = 0

    def add(self, found: Band, single: Sequence[bool], truth: FloatArray) -> None:
        self.trials += 1
        self.single = self.single + np.array(single, np.int64)
        self.band += all(map(_holds, found.low, found.high, truth))
        losses = np.flatnonzero(truth < -1e-12)
        first, (earliest, latest) = int(losses[0]) + 1 if losses.size else np.inf, found.first_loss
        self.first_loss += (np.inf if earliest is None else earliest) <= first <= (np.inf if latest is None else latest)
        self.crossing += bool(found.above and found.below and found.above[0][0] < found.below[-1][1])

    def cells(self) -> list[str]:
        counts = (float(np.mean(self.single)), self.band, self.first_loss, self.crossing)
        return [f"{100 * count / self.trials:.1f}" for count in counts]


def trial(rng: Generator, population: Population, problems: int, n: int, unequal: bool, held: Held) -> None:
    """One comparison of both sides; unequal: half of the problems have three times as many samples before."""
    kinds = rng.choice(len(population.weights), problems, p=population.weights)
    before, after = np.full((2, problems), n)
    before[::2] *= 3 if unequal else 1
    sides = [(m, rng.binomial(m, p[kinds])) for m, p in ((before, population.before), (after, population.after))]
    truth = population.change(n)
    single = []
    for k in {1, n // 4, n // 2, n}:
        values = [pass_at_k(*side, k) for side in sides]
        interval = mean_interval(values[1] - values[0], -1.0, 1.0)
        single.append(_holds(interval.low, interval.high, truth[k - 1]))
    held.add(band([sides[0]], [sides[1]]), single, truth)


def rows(trials: int) -> Iterator[list[str]]:
    """Rows of the table, one for each population and number of problems; a cell has a value for each number of
    samples."""
    for place, population in enumerate(POPULATIONS):
        for problems in PROBLEMS:
            cells = []
            for n in SAMPLES:
                rng, held = np.random.default_rng([place, problems, n]), Held()
                for number in range(trials):
                    trial(rng, population, problems, n, number % 2 == 1, held)
                cells.append(held.cells())
            yield [population.name, str(problems), *map(" / ".join, zip(*cells, strict=True))]


def _holds(low: float, high: float, truth: float) -> bool:
    return low - 1e-12 <= truth <= high + 1e-12


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    columns = ["population", "problems", "single k", "band", "first loss", "gain and loss found"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows(parser.parse_args(arguments).trials):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
