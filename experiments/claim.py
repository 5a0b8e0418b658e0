"""Where pass@k is lost and what keeps it, from the published counts: python -m experiments.claim [TABLE …]

The tables of docs/results/findings.md and docs/results/what-we-know.md. Intervals are Student's at 95 %, over starts,
worlds or runs; none is over the problems of one run. `--figure FILE` draws the first table.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from experiments.anchor.counts import read
from experiments.anchor.design import CONFIRM_STARTS, STARTS
from experiments.evidence import over, table
from experiments.factorial.tables import Start, by_class, class_shares, level, mean_at
from experiments.intervals import student_interval
from experiments.mixing import interpolated, mean_of, missed, mix_at, mixed, pass_of
from experiments.worlds import (
    TITLES,
    elsewhere_table,
    mastered_table,
    power_table,
    setting_table,
    shift_table,
    signed,
    worlds_table,
)

COUNTS = Path("experiments/counts")
Starts = Mapping[int, Start]
Names = tuple[str, ...]

GRPO: Names = ("grpo-1e-4", "grpo-1e-4-again")
NEAR: Names = ("near-js-0.3", "near-js-1", "near-js-2")
SOLVED: Names = ("solved-js-0.3", "solved-js-1", "solved-js-2")
ARMS: Mapping[str, Names] = {
    "GRPO 1e-4": GRPO,
    "D_exp only": ("exp_only",),
    "DPH-JS, η 0.6, 16 rows": ("dph_js",),
    "all problems + near-perfect rows (JS, η 0.3, 1, 2)": NEAR,
    "all problems + rows of all solved (JS, η 0.3, 1, 2)": SOLVED,
    "all problems + rows of all solved (−log u, η 1)": ("solved-raw-1",),
    "`grpo_sft`": ("distinct-raw-1",),
    "k3 on the rollouts, β 0.1": ("k3-0.1",),
    "k3 on the rollouts, β 0.3": ("k3-0.3",),
    "GRPO 1e-4, halfway weights": ("grpo-1e-4-share0.5",),
}
"""Arms of the experiments B and E by the names that the pages give them, all at the learning rate 1e-4."""
FRONTIER: Sequence[Names] = (
    ("base",),
    *((f"grpo-{lr}", f"grpo-{lr}-again") for lr in ("2.5e-5", "5e-5", "1e-4", "2e-4")),
)
"""The base model and GRPO's learning rates in experiment B, each over two training seeds."""
GRPO_STOPS = ((0, "base"), *((step, f"grpo-1e-4-step{step}") for step in (50, 75, 100)), (125, "grpo-1e-4"))
"""Steps of one training run of GRPO, and the evaluations of its models."""
WIDE: Sequence[Names] = (("base",), *((f"grpo-24-{lr}",) for lr in ("1.25e-5", "2.5e-5", "5e-5")))
"""The same in experiment F, with as many responses as its other arms."""
WIDE_E: Sequence[Names] = (("base",), *((f"grpo-24-{lr}",) for lr in ("2.5e-5", "5e-5", "1e-4")))
"""The same in experiment E."""
METRICS = ("mean", "pass@8", "pass@32")
KS = (1, 2, 4, 8, 16, 32)
MASTERED = 0.75
"""Share of correct samples of a near-perfect problem: 6 of 8."""


# Countdown ----------------------------------------------------------------------------------------------------------


@cache
def countdown(folder: Path) -> dict[int, Start]:
    """The starts of the experiments B and E, with the evaluations of both."""
    files = (folder / "anchor-e.parquet", folder / "anchor.parquet")
    return {start: {name: one for file in files for name, one in read(file, start).items()} for start in STARTS}


@cache
def countdown_f(folder: Path) -> dict[int, Start]:
    """The starts of experiment F."""
    return {start: read(folder / "anchor-f.parquet", start) for start in CONFIRM_STARTS}


def where_table(folder: Path, k: int = 32) -> Iterator[str]:
    """Points of pass@k that each arm gains or loses against the base model, by how often the base model solves a
    problem. Class and level come from two evaluations of the base model, both ways."""
    starts = countdown(folder)
    shares = np.mean([class_shares(one, ("base", "base-again")) for one in starts.values()], axis=0)
    rows = [["share of the problems, %", *(f"{100 * share:.1f}" for share in shares), "100"]]
    for title, names in ARMS.items():
        parts = 100 * np.array([by_class(one, names, k) for one in starts.values()])
        rows.append([title, *(signed(value) for value in parts.mean(0)), over([p.sum() / 100 for p in parts])])
    yield from table([f"Countdown, twelve starts: points of pass@{k}", *TITLES, "all problems"], rows)


def losable_table(folder: Path) -> Iterator[str]:
    """GRPO's change of pass@k by where the base model's success lies between 1/k and 4/k, and on near-perfect ones."""
    rows = []
    for k in KS:
        parts, shares = _losable(countdown(folder), k)
        cells = [f"{signed(part)} on {100 * share:.0f} %" for part, share in zip(parts, shares, strict=True)]
        rows.append([f"pass@{k}", *cells, signed(sum(parts[:4]))])
    head = ["GRPO 1e-4 against the base model", "unsolved", "below 1/k", "1/k to 4/k", "4/k and more", "near-perfect"]
    yield from table([*head, "all problems"], rows)


def _losable(starts: Starts, k: int) -> tuple[list[float], list[float]]:
    """Points of pass@k, and the share of the problems: unsolved, below 1/k, from 1/k to below 4/k, the others, and (in
    several of these) near-perfect."""
    parts, shares = [], []
    for start in starts.values():
        trained = np.mean([1 - missed(start[name].counts, k) for name in GRPO], axis=0)
        for by, against in (("base", "base-again"), ("base-again", "base")):
            n, c = np.array(start[by].counts).T
            change = trained - (1 - missed(start[against].counts, k))
            edges = [c == 0, (c > 0) & (c * k < n), (c * k >= n) & (c * k < 4 * n), c * k >= 4 * n, c >= MASTERED * n]
            parts.append([100 * change[chosen].sum() / len(n) for chosen in edges])
            shares.append([chosen.mean() for chosen in edges])
    return np.mean(parts, axis=0).tolist(), np.mean(shares, axis=0).tolist()


def _difference(starts: Starts, one: Names, other: Names) -> list[str]:
    found = _levels_between(starts, one, other)
    return [f"{over(each)}, {sum(value > 0 for value in each)} of {len(each)}" for each in found]


def _levels_between(starts: Starts, one: Names, other: Names) -> list[list[float]]:
    return [[level(s, one, metric) - level(s, other, metric) for s in starts.values()] for metric in METRICS]


def one_rate_table(folder: Path) -> Iterator[str]:
    """Differences at one learning rate, Countdown: the mean of samples, pass@8 and pass@32."""
    starts, rows = countdown(folder), []
    pairs: list[tuple[str, Names, Names]] = [
        ("near-perfect rows (JS, η 0.3, 1, 2) − none, all problems", NEAR, GRPO),
        *((f"η {arm[8:]} alone, near-perfect rows − none", (arm,), GRPO) for arm in NEAR),
        ("the three η − the run of GRPO with the same training seed", NEAR, GRPO[:1]),
        ("DPH-JS (η 0.6, 16 rows) − D_exp only", ("dph_js",), ("exp_only",)),
        ("D_exp only − GRPO", ("exp_only",), GRPO),
        ("DPH-JS (η 0.6, 16 rows) − GRPO", ("dph_js",), GRPO),
        ("rows of all solved (JS, η 0.3, 1, 2) − near-perfect rows, all problems", SOLVED, NEAR),
        ("rows of all solved (−log u, η 1) − none, all problems", ("solved-raw-1",), GRPO),
        ("`grpo_sft` − GRPO", ("distinct-raw-1",), GRPO),
        ("k3 β 0.1 − GRPO", ("k3-0.1",), GRPO),
        ("k3 β 0.1 − the run of GRPO with the same training seed", ("k3-0.1",), GRPO[:1]),
        ("k3 β 0.3 − GRPO", ("k3-0.3",), GRPO),
        ("halfway weights − GRPO", ("grpo-1e-4-share0.5",), GRPO),
        ("halfway weights − GRPO, 2e-4", ("grpo-2e-4-share0.5",), ("grpo-2e-4", "grpo-2e-4-again")),
    ]
    for title, one, other in pairs:
        rows.append([title, *_difference(starts, one, other)])
    yield from table(["Countdown, learning rate 1e-4, twelve starts", "mean@64", "pass@8", "pass@32"], rows)


def speed_table(folder: Path) -> Iterator[str]:
    """Steps to an accuracy: the step at which GRPO, at the same learning rate and with the same rollouts, had the mean
    of samples that an arm has after 125 steps. Lines join GRPO's stops; where GRPO never had it, the last counts."""
    starts, rows = countdown(folder), []
    for title, names in ARMS.items():
        if names == GRPO or "halfway" in title:
            continue
        steps, ahead, drawn = [], 0, set()
        for start in starts.values():
            reached = level(start, names, "mean")
            curve = [(step, level(start, (name,), "mean")) for step, name in GRPO_STOPS]
            steps.append(_first_step(curve, reached))
            ahead += reached > curve[-1][1]
            drawn |= {start[name].rollouts for name in names}
        found = student_interval(steps)
        cell = f"{found.estimate:.0f} ({found.low:.0f} to {found.high:.0f})"
        rows.append([title, cell, f"{ahead} of {len(starts)}", f"{min(drawn) / 1000:.0f}"])
    head = ["after 125 steps as accurate as GRPO 1e-4", "GRPO's step", "starts above GRPO's end", "thousand responses"]
    yield from table(head, rows)


def _first_step(curve: Sequence[tuple[int, float]], reached: float) -> float:
    """Where the lines between the points (step, level) of a curve first reach a level; the last step if nowhere."""
    for (step, value), (later, other) in pairwise(curve):
        if value < reached <= other:
            return step + (later - step) * (reached - value) / (other - value)
    return curve[-1][0] if reached > curve[0][1] else curve[0][0]


def _compared(folder: Path) -> Iterator[tuple[str, Starts, Names, Sequence[Names]]]:
    """What is read against GRPO's learning rates at equal pass@k: title, starts, arms, and the lines' points."""
    b, f = countdown(folder), countdown_f(folder)
    for title, names in (*ARMS.items(), ("GRPO 2e-4, halfway weights", ("grpo-2e-4-share0.5",))):
        if names != GRPO:
            yield title, b, names, FRONTIER
    for title, name in (("`grpo_sft`", "distinct-raw-1"), ("k3, β 0.3", "k3-24-0.3"), ("k3, β 1", "k3-24-1")):
        yield f"{title}, against GRPO with as many responses (experiment F)", f, (name,), WIDE
    for title, name in (("`grpo_sft`", "distinct-raw-1"), ("rows of all solved (−log u, η 1)", "solved-raw-1")):
        yield f"{title}, against GRPO with as many responses (experiment E)", b, (name,), WIDE_E


def equal_table(folder: Path) -> Iterator[str]:
    """The mean of samples at equal pass@k, minus that of the base model and GRPO's learning rates, by
    `experiments.factorial.tables.mean_at`: the highest mean on the lines at which pass@k is at least that of the arm.
    Where no point of the lines has so much, the mean of the point with the highest pass@k counts; "above the lines" is
    the number of such starts. So no start is left out, and there the rule is against the arm."""
    rows = []
    for title, starts, names, frontier in _compared(folder):
        cells = []
        for k in (8, 32):
            pairs = [_points(start, names, frontier, k) for start in starts.values()]
            above = sum(passed > max(y for _, y in points) for points, (_, passed) in pairs)
            cells += [over(_above(starts, names, frontier, k)), f"{above}"]
        rows.append([title, f"{len(starts)}", *cells])
    head = ["points of mean@64 above GRPO's learning rates", "starts", "at equal pass@8", "above the lines"]
    yield from table([*head, "at equal pass@32", "above the lines"], rows)


def crossing_table(folder: Path) -> Iterator[str]:
    """The other reading of `equal_table`: the highest mean on the lines at which pass@k *equals* that of the arm;
    starts in which no line has it are left out."""
    rows = []
    for title, starts, names, frontier in _compared(folder):
        cells = [title, f"{len(starts)}"]
        for k in (8, 32):
            pairs = [_points(start, names, frontier, k) for start in starts.values()]
            found = [(mean, crossing(points, passed)) for points, (mean, passed) in pairs]
            inside = [mean - other for mean, other in found if other is not None]
            cells += [over(inside) if len(inside) > 1 else "–", f"{len(inside)}"]
        rows.append(cells)
    head = ["points of mean@64 above GRPO's learning rates", "starts", "where pass@8 is equal", "in range"]
    yield from table([*head, "where pass@32 is equal", "in range"], rows)


def crossing(frontier: Sequence[tuple[float, float]], passed: float) -> float | None:
    """The highest mean of samples on the lines between neighbouring points (mean, pass@k) at which pass@k is `passed`;
    None if no line has it."""
    return interpolated([(value, mean) for mean, value in frontier], passed)


def _points(
    start: Start, names: Names, frontier: Sequence[Names], k: int
) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """The points (mean, pass@k) of the lines, and the point of the arms."""
    *points, own = ((level(start, one, "mean"), level(start, one, f"pass@{k}")) for one in (*frontier, names))
    return points, own


def _above(starts: Starts, names: Names, frontier: Sequence[Names], k: int) -> list[float]:
    pairs = [_points(start, names, frontier, k) for start in starts.values()]
    return [mean - mean_at(points, passed) for points, (mean, passed) in pairs]


def direction_table(folder: Path) -> Iterator[str]:
    """Directions of the divergence against one another at one learning rate and at equal pass@k, over all starts. Not
    planned: the protocol compares pass@32 at equal means. Then the anchors on rollouts and on near-perfect rows."""
    starts, rows = countdown(folder), []
    forward, reverse = (tuple(f"solved-{one}_kl-{eta}" for eta in ("0.3", "1", "2")) for one in ("forward", "reverse"))
    k3, k2, k3_is = (tuple(f"{name}-{beta}" for beta in ("0.1", "0.3", "1")) for name in ("k3", "k2", "k3_is"))
    pairs: list[tuple[str, Names, Names]] = [
        ("stored rows: reverse − forward KL (η 0.3, 1, 2)", reverse, forward),
        *((f"stored rows, η {a.rpartition('-')[2]} alone", (a,), (b,)) for a, b in zip(reverse, forward, strict=True)),
        ("rollouts: k2 − k3 (β 0.1, 0.3, 1)", k2, k3),
        ("rollouts: k3_is − k3 (β 0.1, 0.3, 1)", k3_is, k3),
        ("k3 on the rollouts, β 0.1 − near-perfect rows (JS, η 0.3, 1, 2)", k3[:1], NEAR),
    ]
    for title, one, other in pairs:
        found = _levels_between(starts, one, other)
        for k in (8, 32):
            both = (_above(starts, arms, FRONTIER, k) for arms in (one, other))
            found.append([a - b for a, b in zip(*both, strict=True)])
        rows.append([title, *(over(values, 2) for values in found)])
    head = ["Countdown, learning rate 1e-4, twelve starts", "mean@64", "pass@8", "pass@32"]
    yield from table([*head, "mean at equal pass@8", "mean at equal pass@32"], rows)


def free_table(folder: Path) -> Iterator[str]:
    """What costs no training: pass@32 given back, of what GRPO lost, and its price in the mean of samples."""
    starts, rows = countdown(folder), []
    for lr in ("1e-4", "2e-4"):
        grpo: Names = (f"grpo-{lr}",)
        lost = fmean(level(s, ("base",), "pass@32") - level(s, grpo, "pass@32") for s in starts.values())
        mixes = {f"{b} of 32 samples from the base": b for b in (2, 4, 8)}
        shares = {
            title: [mixed(s[grpo[0]].counts, s["base"].counts, b, 32) for s in starts.values()]
            for title, b in mixes.items()
        }
        ways = {"halfway weights": (f"{grpo[0]}-share0.5",), "¾ of the weights": (f"{grpo[0]}-share0.75",)}
        points = {
            title: [(level(s, one, "mean"), level(s, one, "pass@32")) for s in starts.values()]
            for title, one in ways.items()
        }
        for title, found in (points | shares).items():
            own = [(level(s, grpo, "mean"), level(s, grpo, "pass@32")) for s in starts.values()]
            mean, passed = ([a[i] - b[i] for a, b in zip(found, own, strict=True)] for i in (0, 1))
            rows.append([f"GRPO {lr}: {title}", over(passed), f"{100 * fmean(passed) / lost:.0f} %", over(mean)])
    yield from table(["Countdown, twelve starts", "pass@32 − GRPO", "of what was lost", "mean@64 − GRPO"], rows)


def sft_table(folder: Path) -> Iterator[str]:
    """`grpo_sft` minus a free mix of GRPO at as many responses, and halfway weights minus a mix of the same run, each
    at the mean of the first."""
    b, f, rows = countdown(folder), countdown_f(folder), []
    wide, halves = ("distinct-raw-1", "grpo-24-5e-5"), ("grpo-1e-4-share0.5", "grpo-1e-4")
    for title, starts, (one, other) in (
        ("`grpo_sft` − mix of GRPO 24 × 16 at 5e-5, experiment E", b, wide),
        ("`grpo_sft` − mix of GRPO 24 × 16 at 5e-5, experiment F", f, wide),
        ("halfway weights − mix of GRPO 8 × 16 at 1e-4, experiment B", b, halves),
    ):
        found = []
        for start in starts.values():
            own, grpo, base = (start[name].counts for name in (one, other, "base"))
            free = mix_at(grpo, base, mean_of(own), 32)
            found += [] if free is None else [pass_of(own, 32) - free]
        rows.append([title, f"{len(found)} of {len(starts)}", over(found)])
    yield from table(
        ["pass@32 above a mix with samples of the base model, equal mean", "starts in range", "points"], rows
    )


def figure(folder: Path, file: Path) -> None:
    """The first table as bars: points of pass@32 lost in each class of problems."""
    from matplotlib.figure import Figure

    starts = countdown(folder)
    shown = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = shown.subplots()
    arms = {
        "GRPO": GRPO,
        "all problems + near-perfect rows (JS)": NEAR,
        "all problems + rows of all solved (−log u)": ("solved-raw-1",),
        "k3 on the rollouts, β 0.1": ("k3-0.1",),
    }
    shares = np.mean([class_shares(one, ("base", "base-again")) for one in starts.values()], axis=0)
    colours = ("#444444", "#c44e52", "#4c72b0", "#55a868")
    for i, ((title, names), colour) in enumerate(zip(arms.items(), colours, strict=True)):
        parts = 100 * np.array([by_class(one, names, 32) for one in starts.values()])
        found = [student_interval(column) for column in parts.T]
        places = np.arange(len(found)) + 0.2 * (i - 1.5)
        means = [one.estimate for one in found]
        errors = [[one.estimate - one.low for one in found], [one.high - one.estimate for one in found]]
        axes.bar(places, means, 0.2, yerr=errors, label=title, color=colour, error_kw={"lw": 0.8})
    labels = [f"{title}\n({100 * share:.0f} % of problems)" for title, share in zip(TITLES, shares, strict=True)]
    axes.set_xticks(range(len(TITLES)), labels, fontsize=7.5)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(
        xlabel="share of the base model's samples that are correct", ylabel="pass@32 against the base model, points"
    )
    axes.legend(fontsize=8, loc="lower right")
    file.parent.mkdir(parents=True, exist_ok=True)
    shown.savefig(file, dpi=150)


TABLES: Mapping[str, tuple[str, Callable[[Path], Iterator[str]]]] = {
    "where": ("Where pass@32 is lost", where_table),
    "losable": ("Which problems can lose pass@k", losable_table),
    "elsewhere": ("The same in other worlds", elsewhere_table),
    "rate": ("At one learning rate, Countdown", one_rate_table),
    "speed": ("Steps to an accuracy", speed_table),
    "worlds": ("At one learning rate, other worlds", worlds_table),
    "equal": ("The mean at equal pass@k", equal_table),
    "crossing": ("The same, read where pass@k is equal", crossing_table),
    "direction": ("The direction of the divergence", direction_table),
    "free": ("What needs no other training", free_table),
    "sft": ("A mix with samples of the base model", sft_table),
    "mastered": ("Mastered problems", lambda _: mastered_table()),
    "shift": ("Under shift", shift_table),
    "setting": ("Near-perfect problems", lambda folder: setting_table(folder, countdown(folder))),
    "power": ("What three runs can show", power_table),
}
"""Title and lines of each table by its name on the command line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all of them")
    parser.add_argument("--counts", type=Path, default=COUNTS)
    parser.add_argument("--figure", type=Path, help="also draw the first table into this file")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    for name in options.tables or TABLES:
        title, lines = TABLES[name]
        print(f"## {title}\n", *lines(options.counts), sep="\n", end="\n\n")
    if options.figure:
        figure(options.counts, options.figure)


if __name__ == "__main__":
    main()
