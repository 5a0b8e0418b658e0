"""The arms of experiment D2, as its protocol (experiments/results/strategies.md) has them, and its tables."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from experiments.anchor.design import FAST, NEAR, Arm
from experiments.factorial.tables import METRICS, Effect, Start, effect_of, level
from experiments.intervals import student_interval

WORLD = Path(__file__).with_name("world.toml")
STARTS = tuple(range(91, 99))
"""Seeds of the worlds. None was used before."""
COMMONS = ("0", "0.5", "1")
"""Shares of the problems that speak the common dialect."""
PRESAMPLES = (NEAR,)
ETA, BETA = "3", "0.1"
"""Weight of JS on 64 near-perfect rows, which the development starts of experiment D1 chose; strength of k3."""
Cells = Mapping[tuple[int, str], Start]
"""Evaluations by seed of the world and share."""


def options(common: str) -> tuple[str, ...]:
    """The world of a share: further options of the task, then further flags."""
    return ("common", common, "--plugin", "experiments.strategies", "--config", str(WORLD))


def arms() -> tuple[Arm, ...]:
    """The runs of a start, in their order: G, X, XR and K."""
    rate = ("--optim.lr", FAST)
    rows = ("--loss.divergence", "js", "--loss.eta", ETA, "--rehearsal.rows", "64")
    return (
        Arm("g", "g", ("--preset", "grpo", *rate), None),
        Arm("x", "x", ("--preset", "exp_only", *rate), NEAR),
        Arm("xr", "xr", ("--preset", "exp_only", *rate, *rows), NEAR),
        Arm("k", "k", ("--preset", "grpo", *rate, "--loss.kl", "k3", "--loss.kl-coef", BETA), None),
    )


def complete(cells: Cells) -> list[int]:
    """The seeds for which every share has every evaluation."""
    names = {"base", *(arm.name for arm in arms())}
    return [s for s in STARTS if all(names <= cells.get((s, share), {}).keys() for share in COMMONS)]


def transfer(cells: Cells, seed: int, metric: str) -> list[float]:
    """XR − X of a seed at each share, as shares."""
    return [level(cells[seed, c], ("xr",), metric) - level(cells[seed, c], ("x",), metric) for c in COMMONS]


def primary(cells: Cells) -> Effect | None:
    """XR − X of pass@8 at the largest share minus that at the smallest, over the complete seeds; None for fewer than
    two."""
    seeds = complete(cells)
    gaps = [transfer(cells, seed, "pass@8") for seed in seeds]
    return effect_of([gap[-1] - gap[0] for gap in gaps]) if len(seeds) > 1 else None


def tables(cells: Cells) -> Iterator[str]:
    """The primary comparison, XR − X at each share, then every arm's level."""
    found = primary(cells)
    holds = "–" if found is None else "holds" if found.low > 0 else "does not hold"
    yield "| primary comparison | asked for | points, 95 % | |"
    yield "|---|---|---|---|"
    yield f"| (XR − X at share 1) − (XR − X at share 0), pass@8 | above 0 | {found or '–'} | {holds} |"
    yield ""
    yield "| difference | share | " + " | ".join(METRICS) + " |"
    yield "|---" * (len(METRICS) + 2) + "|"
    seeds = complete(cells)
    for title, one, other in (("XR − X", "xr", "x"), ("XR − G", "xr", "g"), ("X − G", "x", "g"), ("K − G", "k", "g")):
        for share in COMMONS if len(seeds) > 1 else ():
            starts = [cells[seed, share] for seed in seeds]
            gaps = ([level(s, (one,), metric) - level(s, (other,), metric) for s in starts] for metric in METRICS)
            yield f"| {title} | {share} | " + " | ".join(str(effect_of(gap)) for gap in gaps) + " |"
    yield ""
    yield "| share | model | starts | " + " | ".join(METRICS) + " | strategies among correct samples |"
    yield "|---" * 3 + "|---:" * (len(METRICS) + 1) + "|"
    for share in COMMONS:
        here = {seed: start for (seed, common), start in cells.items() if common == share}
        for name in sorted({name for start in here.values() for name in start}):
            own = [start for start in here.values() if name in start]
            shown = [f"{100 * np.mean([level(s, (name,), metric) for s in own]):.1f}" for metric in METRICS]
            kinds = student_interval([np.mean([len(forms) for forms in s[name].forms]) for s in own]).estimate
            yield f"| {share} | {name} | {len(own)} | " + " | ".join([*shown, f"{kinds:.2f}"]) + " |"
