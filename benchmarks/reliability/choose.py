"""Errors of `dph certify --choose` under orders of rows: `python -m benchmarks.reliability.choose [--runs 1000]`.

300 problems with 16 samples, of which 8 choose the problems with 6 or more right; the checkpoint's chance is 0.94 times
the base model's. An error is a bound below the true loss of such problems: it would certify a loss that is too large by
as little as one likes. Sides are sampled with one seed (a sample of the checkpoint uses the base model's random number)
or apart. Rows come as sampled, or one or both sides in another order. "first rows" is the split by the order of rows;
numbers go with the rows; without numbers only counts are used.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from dph.measure.certificate import Choice, Judged, losses, upper_bound
from dph.measure.intervals import FloatArray

PROBLEMS, SAMPLES, CHOOSE, MASTERED, KEPT = 300, 16, 8, 0.75, 0.94
POPULATIONS: dict[str, Callable[[Generator, int], FloatArray]] = {
    "uniform": lambda rng, count: rng.random(count),
    "two kinds": lambda rng, count: np.where(rng.random(count) < 0.5, 0.95, rng.random(count)),
    "Beta(19, 1)": lambda rng, count: rng.beta(19, 1, count),
}
Rows = np.ndarray
"""[problems, samples, 2]: the number of each row's sample, and whether it is correct."""
ORDERS: dict[str, Callable[[Rows], Rows]] = {
    "as sampled": lambda rows: rows,
    "reversed": lambda rows: rows[:, ::-1],
    "correct first": lambda rows: np.take_along_axis(rows, np.argsort(-rows[..., 1], 1, kind="stable")[..., None], 1),
    "wrong first": lambda rows: np.take_along_axis(rows, np.argsort(rows[..., 1], 1, kind="stable")[..., None], 1),
    "odd, then even": lambda rows: np.concatenate([rows[:, 1::2], rows[:, ::2]], 1),
}
SPLITS = ("first rows", "numbers", "counts")


def true_loss(population: str) -> float:
    """The mean loss of the problems that are chosen."""
    rng = np.random.default_rng(1)
    chances = POPULATIONS[population](rng, 1_000_000)
    chosen = chances[rng.binomial(CHOOSE, chances) >= MASTERED * CHOOSE]
    return float((1 - KEPT) * chosen.mean())


def judged(rows: Rows, split: str, run: int) -> Judged:
    """One side as a file with these rows gives it."""
    places = rows[..., 0] if split == "numbers" else np.broadcast_to(np.arange(SAMPLES), rows.shape[:2])
    side = {
        f"{run} {i}": dict(zip(numbers, right, strict=True))
        for i, (numbers, right) in enumerate(zip(places.tolist(), rows[..., 1].tolist(), strict=True))
    }
    made = Judged(side, split == "numbers")
    return made.without_numbers() if split == "counts" else made


def bound(base: Rows, now: Rows, split: str, run: int) -> float:
    """The bound of the loss."""
    if split == "first rows":
        chosen = base[:, :CHOOSE, 1].sum(1) >= MASTERED * CHOOSE
        before, after = (side[chosen, CHOOSE:, 1].mean(1) for side in (base, now))
        return float(upper_bound(before - after))
    choice = Choice(judged(base, split, run), CHOOSE, MASTERED)
    return float(upper_bound(list(losses(choice.base, choice.counts(judged(now, split, run))).values())))


def simulate(population: str, one_seed: bool, runs: int) -> dict[tuple[str, str, str], float]:
    """The share of errors by the orders of both sides' rows and the split."""
    loss, wrong = (
        true_loss(population),
        dict.fromkeys(((first, second, split) for first in ORDERS for second in ORDERS for split in SPLITS), 0),
    )
    rng = np.random.default_rng([one_seed, *population.encode()])
    number = np.broadcast_to(np.arange(SAMPLES), (PROBLEMS, SAMPLES))
    for run in range(runs):
        chances = POPULATIONS[population](rng, PROBLEMS)[:, None]
        uniform = rng.random((PROBLEMS, SAMPLES))
        other = uniform if one_seed else rng.random((PROBLEMS, SAMPLES))
        base, now = (np.stack([number, u < p], -1) for u, p in ((uniform, chances), (other, KEPT * chances)))
        by_split = {split: bound(base, now, split, run) for split in SPLITS[1:]}  # which no order changes
        for first, second in ((a, b) for a in ORDERS for b in ORDERS):
            sides = ORDERS[first](base), ORDERS[second](now)
            if run < 3:
                assert all(bound(*sides, split, run) == by_split[split] for split in SPLITS[1:])
            found = by_split | {"first rows": bound(*sides, "first rows", run)}
            for split in SPLITS:
                wrong[first, second, split] += found[split] < loss
    return {case: count / runs for case, count in wrong.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args(arguments).runs
    shown = [("as sampled", "as sampled"), ("as sampled", "reversed"), ("correct first", "as sampled")]
    shown += [("correct first", "correct first"), ("as sampled", "wrong first"), ("wrong first", "correct first")]
    columns = [f"{population}, {seed}" for population in POPULATIONS for seed in ("one seed", "apart")]
    found = [simulate(population, seed, runs) for population in POPULATIONS for seed in (True, False)]
    print("| split | base | checkpoint | " + " | ".join(columns) + " |\n|" + "---|" * (3 + len(columns)))
    for split in SPLITS:
        for first, second in shown if split == "first rows" else [("any", "any")]:
            key = (first, second, split) if first in ORDERS else ("as sampled", "as sampled", split)
            cells = " | ".join(f"{100 * one[key]:.1f}" for one in found)
            print(f"| {split} | {first} | {second} | {cells} |")


if __name__ == "__main__":
    main()
