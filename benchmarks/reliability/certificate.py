"""Errors and power of certificates, by simulation: `python -m benchmarks.reliability.certificate [--runs 10000]`.

Errors: every run draws problems and samples of a checkpoint whose true loss is exactly ε. A certificate is then an
error, and its share must be at most α. Beside the bound by betting there are empirical Bernstein and, as a warning,
the usual normal bound. A sequence has ten checkpoints that share the base model's samples; nothing is lost in the
first four, and ε in the others. It is tested until the first failure ("fixed") or in all of its checkpoints ("all").

Power: the share of runs that certify ε if nothing is lost, and if half of ε is lost (evenly: each problem loses the
same share of its success). The base model's success is Beta(19, 1): 95 % on average. Samples of both sides are
independent; paired samples, as in `dph train`, certify more.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dph.measure.certificate import upper_bound

ALPHA = 0.05
CHECKPOINTS, FIRST_NULL = 10, 4
Array = NDArray[np.float64]


class Setting(NamedTuple):
    """A distribution of the differences at a true loss of epsilon."""

    problems: int
    n: int
    epsilon: float
    success: Callable[[Generator, tuple[int, int], float], tuple[Array, Array]]
    """From a shape [runs, problems] and a loss to the success of the base model and of the checkpoint; the mean of
    their difference over problems is the loss."""


def even(rng: Generator, shape: tuple[int, int], loss: float) -> tuple[Array, Array]:
    base = rng.beta(19, 1, shape)
    return base, base * (1 - loss / 0.95)


def rare(rng: Generator, shape: tuple[int, int], loss: float) -> tuple[Array, Array]:
    base = np.ones(shape)  # a few problems are lost wholly, nothing else happens: a set may show no trace of it
    return base, np.where(rng.random(shape) < loss, 0.0, base)


def bimodal(rng: Generator, shape: tuple[int, int], loss: float) -> tuple[Array, Array]:
    base = np.where(rng.random(shape) < 0.5, 1.0, 0.8)  # half of the problems gain 0.2, others are lost wholly
    lost = rng.random(shape) < (loss + 0.1) / 0.5
    return base, np.where(base == 0.8, 1.0, np.where(lost, 0.0, 1.0))


SETTINGS = {
    "binary": Setting(200, 1, 0.05, even),
    "even": Setting(200, 4, 0.05, even),
    "bimodal": Setting(200, 4, 0.05, bimodal),
    "rare loss": Setting(200, 4, 0.05, rare),
    "rare loss, smallest set": Setting(68, 4, 0.05, rare),
    "tiny set": Setting(20, 4, 0.2, rare),
    "tiny set, binary": Setting(20, 1, 0.2, even),
    "large set": Setting(1000, 4, 0.02, bimodal),
}


class Errors(NamedTuple):
    """Shares of runs that certify although epsilon is lost."""

    share: float
    bernstein: float
    normal: float


def normal_bound(d: Array) -> Array:
    """The mean plus 1.645 standard errors, which promises nothing for few problems or rare losses."""
    return d.mean(-1) + 1.6449 * d.std(-1, ddof=1) / math.sqrt(d.shape[-1])


def bernstein_bound(d: Array, alpha: float = ALPHA) -> Array:
    """The older empirical Bernstein bound for the same mean (Maurer and Pontil, arXiv 0907.3740), [..., problems ≥ 2] →
    [...]; it needs several times as many problems where little is lost."""
    count, tail = d.shape[-1], math.log(2 / alpha)
    spread = np.sqrt(2 * d.var(-1, ddof=1) * tail / count)
    return d.mean(-1) + spread + 14 * tail / (3 * (count - 1))


def simulate(name: str, runs: int, seed: int = 0) -> Errors:
    """The errors of one setting."""
    of, rng = SETTINGS[name], np.random.default_rng([seed, *name.encode()])
    counts = np.zeros(3)
    for size in _parts(runs, of.problems):
        d = _differences(rng, of, of.success(rng, (size, of.problems), of.epsilon))
        counts += [(bound(d) <= of.epsilon).sum() for bound in (upper_bound, bernstein_bound, normal_bound)]
    return Errors(*(counts / runs).tolist())


def simulate_sequences(name: str, runs: int, seed: int = 0) -> tuple[float, float]:
    """Shares of sequences with a wrong certificate: tested until the first failure, and in all checkpoints."""
    of, rng = SETTINGS[name], np.random.default_rng([seed, 1, *name.encode()])
    fixed = everywhere = 0
    for size in _parts(runs, of.problems * CHECKPOINTS):
        shape = (size, of.problems)
        base, last = of.success(rng, shape, of.epsilon)
        sampled = rng.binomial(of.n, base) / of.n
        going, wrong, any_wrong = np.ones(size, bool), np.zeros(size, bool), np.zeros(size, bool)
        for checkpoint in range(CHECKPOINTS):
            now = last if checkpoint >= FIRST_NULL else base
            certified = upper_bound(sampled - rng.binomial(of.n, np.clip(now, 0, 1)) / of.n, ALPHA) <= of.epsilon
            going &= certified
            if checkpoint >= FIRST_NULL:
                wrong |= going
                any_wrong |= certified
        fixed, everywhere = fixed + int(wrong.sum()), everywhere + int(any_wrong.sum())
    return fixed / runs, everywhere / runs


def power(problems: int, n: int, epsilon: float, loss: float, runs: int, seed: int = 0) -> float:
    """The share of runs that certify epsilon at a true loss."""
    rng = np.random.default_rng([seed, problems, n, round(1e6 * epsilon), round(1e6 * loss)])
    of = Setting(problems, n, epsilon, even)
    found = 0
    for size in _parts(runs, problems):
        d = _differences(rng, of, even(rng, (size, problems), loss))
        found += int((upper_bound(d, ALPHA) <= epsilon).sum())
    return found / runs


def _differences(rng: Generator, of: Setting, success: tuple[Array, Array]) -> Array:
    base, now = (rng.binomial(of.n, np.clip(side, 0, 1)) / of.n for side in success)
    return base - now


def _parts(runs: int, width: int) -> list[int]:
    """Sizes of batches of runs whose arrays stay small."""
    size = max(1, 400_000 // width)
    return [min(size, runs - start) for start in range(0, runs, size)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--power-runs", type=int, default=1000)
    options = parser.parse_args(arguments)
    print("| distribution | problems × samples | ε | betting | Bernstein | normal | sequence: fixed | sequence: all |")
    print("|---|---|---|---|---|---|---|---|")
    for name, of in SETTINGS.items():
        errors = [*simulate(name, options.runs), *simulate_sequences(name, options.runs)]
        cells = " | ".join(f"{100 * share:.2f}" for share in errors)
        print(f"| {name} | {of.problems} × {of.n} | {of.epsilon:g} | {cells} |", flush=True)
    epsilons = (0.02, 0.05, 0.1)
    print(
        "\n| problems × samples | " + " | ".join(f"ε = {epsilon:g}" for epsilon in epsilons) + " |\n|---|---|---|---|"
    )
    for problems in (50, 100, 200, 400, 1000):
        for n in (1, 4, 16):
            pairs = [[power(problems, n, e, loss, options.power_runs) for loss in (0.0, e / 2)] for e in epsilons]
            cells = " | ".join(f"{100 * none:.0f} / {100 * half:.0f}" for none, half in pairs)
            print(f"| {problems} × {n} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
