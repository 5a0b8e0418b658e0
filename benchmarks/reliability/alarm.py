"""Errors and power of the alarm about a fall of pass@k: `python -m benchmarks.reliability.alarm [--runs 400]`.

A run measures 64 problems with 16 samples at every look; the alarm is about pass@8. Errors: the share of runs without
a fall that raise it at any look; chances stay or rise. Power: the share of
runs in which it is raised within some looks after a fall at the 11th, which takes every solution of some problems
("lost") or a share of every problem's chance ("weaker").
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from dph.measure.falls import FallAlarm
from dph.measure.intervals import FloatArray

PROBLEMS, SAMPLES, FELL, K = 64, 16, 10, 8
LOOKS = (10, 50, 200)
POPULATIONS: dict[str, Callable[[Generator], FloatArray]] = {
    "uniform": lambda rng: rng.random(PROBLEMS),
    "mostly solved": lambda rng: rng.beta(4, 0.5, PROBLEMS),
    "mostly unsolved": lambda rng: rng.beta(0.3, 1, PROBLEMS),
}


def first_alarm(rng: Generator, chances: FloatArray) -> int | None:
    """The first look of [looks, problems] that raises the alarm."""
    alarm = FallAlarm(SAMPLES)
    for look, chance in enumerate(chances):
        counts = {str(i): (int(c), SAMPLES) for i, c in enumerate(rng.binomial(SAMPLES, chance))}
        if alarm.note(look, counts):
            return look
    return None


def without_a_fall(rng: Generator, how: str, chances: FloatArray, looks: int) -> FloatArray:
    """Chances [looks, problems] of a run without a fall."""
    if how == "rise":
        return 1 - (1 - chances) * np.linspace(1, 0.6, looks)[:, None]
    return np.repeat(chances[None], looks, 0)


def errors(name: str, how: str, looks: int, runs: int) -> float:
    """The share of runs without a fall that raise the alarm."""
    rng = np.random.default_rng([looks, *f"{name} {how}".encode()])
    paths = (without_a_fall(rng, how, POPULATIONS[name](rng), looks) for _ in range(runs))
    return sum(first_alarm(rng, path) is not None for path in paths) / runs


def fallen(rng: Generator, chances: FloatArray, points: float, how: str) -> FloatArray:
    """The chances after a fall of pass@8 by so many points, or by all that there is."""

    def fall(after: FloatArray) -> float:
        return 100 * float(((1 - after) ** K - (1 - chances) ** K).mean())

    if how == "weaker":
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if fall(middle * chances) > points else (low, middle)
        return low * chances
    after = chances.copy()
    for place in rng.permutation(PROBLEMS):
        if fall(after) < points:
            after[place] = 0.0
    return after


def power(name: str, how: str, points: float, runs: int) -> list[float]:
    """The shares of runs that raise the alarm at the first look after a fall, within 5, and within 40."""
    rng = np.random.default_rng([round(points), *f"{name} {how}".encode()])
    seen = []
    for _ in range(runs):
        before = POPULATIONS[name](rng)
        path = np.repeat([before, fallen(rng, before, points, how)], [FELL, 40], 0)
        seen.append(first_alarm(rng, path))
    late = [look - FELL + 1 for look in seen if look is not None and look >= FELL]
    return [sum(one <= within for one in late) / runs for within in (1, 5, 40)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args(arguments).runs
    print("| no fall | " + " | ".join(f"{looks} looks" for looks in LOOKS) + " |\n|---|---|---|---|")
    for name in POPULATIONS:
        for how in ("stay", "rise"):
            shares = [100 * errors(name, how, looks, max(1, runs if looks < 200 else runs // 4)) for looks in LOOKS]
            print(f"| {name}, chances {how} | " + " | ".join(f"{share:.1f}" for share in shares) + " |", flush=True)
    print("\n| fall of pass@8 | first look | within 5 | within 40 |\n|---|---|---|---|")
    for name in ("uniform", "mostly solved"):
        for points in (3, 5, 10, 20):
            for how in ("lost", "weaker"):
                shares = power(name, how, points, max(1, runs // 4))
                cells = " | ".join(f"{100 * share:.0f}" for share in shares)
                print(f"| {name}, {points} points, {how} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
