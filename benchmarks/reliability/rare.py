"""Errors of `dph certify --choose --for-k`: `python -m benchmarks.reliability.rare [--runs 200]`.

300 problems with 64 samples, of which 32 choose those that can lose pass@16: at least 2 and less than 8 of them are
correct. The checkpoint's chance is 0.7 times the base model's. An error is a bound below the true loss of such
problems. Sides are sampled with one seed or apart; samples have numbers, or only counts are known.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from dph.measure.certificate import Choice, Judged, losses, upper_bound
from dph.measure.intervals import FloatArray

PROBLEMS, SAMPLES, CHOOSE, K, KEPT = 300, 64, 32, 16, 0.7
POPULATIONS: dict[str, Callable[[Generator, int], FloatArray]] = {
    "log-uniform": lambda rng, count: np.exp(rng.uniform(np.log(0.005), 0, count)),
    "uniform": lambda rng, count: rng.random(count),
    "all at 1/k": lambda rng, count: np.full(count, 1 / K),
    "all at 4/k": lambda rng, count: np.full(count, 4 / K),
}


def true_loss(population: str) -> float:
    """The mean loss of pass@k of the problems that are chosen."""
    rng = np.random.default_rng(1)
    chances = POPULATIONS[population](rng, 1_000_000)
    correct = rng.binomial(CHOOSE, chances)
    chosen = chances[(correct * K >= CHOOSE) & (correct * K < 4 * CHOOSE)]
    return float(((1 - KEPT * chosen) ** K - (1 - chosen) ** K).mean())


def bounds(population: str, one_seed: bool, numbered: bool, runs: int) -> FloatArray:
    """The bound of each run [runs, ways], by each way to leave the checkpoint's samples out."""
    rng = np.random.default_rng([one_seed, *population.encode()])
    found = []
    for run in range(runs):
        chances = POPULATIONS[population](rng, PROBLEMS)[:, None]
        uniform = rng.random((PROBLEMS, SAMPLES))
        other = uniform if one_seed else rng.random((PROBLEMS, SAMPLES))
        base, now = (_judged(u < p, numbered, run) for u, p in ((uniform, chances), (other, KEPT * chances)))
        choice = Choice(base, CHOOSE, 0.75, for_k=K)
        found.append([float(upper_bound(list(losses(choice.base, way, K).values()))) for way in choice.ways(now)])
    return np.array(found)


def _judged(right: np.ndarray, numbered: bool, run: int) -> Judged:
    samples = {f"{run} {place}": dict(enumerate(row)) for place, row in enumerate(right.astype(int).tolist())}
    judged = Judged(samples, True)
    return judged if numbered else judged.without_numbers()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args(arguments).runs
    print("| problems | true loss | samples | one seed: error, mean bound | apart: error, mean bound |")
    print("|---|---|---|---|---|")
    for population in POPULATIONS:
        loss = true_loss(population)
        for numbered in (True, False):
            each = [bounds(population, seed, numbered, runs).max(1) for seed in (True, False)]
            cells = [f"{100 * (one < loss).mean():.1f}, {100 * one.mean():.1f}" for one in each]
            print(
                f"| {population} | {100 * loss:.1f} | {'numbers' if numbered else 'counts'} | {' | '.join(cells)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
