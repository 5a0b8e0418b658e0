"""Tables and figures of the experiments B, E and F from the counts of their starts.

A family's frontier in a start has its arms in the order of their strength. An anchor's frontier begins with GRPO at the
same learning rate, the anchor of strength 0. Comparisons are made at one mean of samples, the mean of GRPO at 5e-5,
between neighbouring points of a frontier and never beyond its ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from experiments.anchor.counts import Evaluated
from experiments.anchor.design import (
    DELETED,
    FAST,
    NEAR,
    NEEDED,
    SOLVED,
    Arm,
    Made,
    arms,
    confirm_arms,
    follow_arms,
    made,
)
from experiments.intervals import student_interval
from experiments.mixing import cover_of, distinct_among, interpolated, mean_of, mix_at, mixed, pass_of, simpson

K = 32
TARGET = "grpo-5e-5"
ZERO = f"grpo-{FAST}"
"""The arm with anchors of strength 0."""
CORRECT = 8
"""Distinct solutions are counted among this many correct samples of problems that have as many with the base model."""
COVER = 0.25
FREE = {
    "grpo": [f"grpo-{lr}" for lr in ("2.5e-5", "5e-5", "1e-4", "2e-4")],
    "grpo-again": [f"grpo-{lr}-again" for lr in ("2.5e-5", "5e-5", "1e-4", "2e-4")],
    "stops": [*(f"{ZERO}-step{step}" for step in (50, 75, 100)), ZERO],
    "shares": [f"{ZERO}-share0.5", f"{ZERO}-share0.75", ZERO],
}
"""Families without an anchor, from weak to strong."""
COMPARISONS = (
    ("1 place", f"{SOLVED}-js", f"{NEAR}-js"),
    ("2 place", "k3", "mix"),
    ("3 use", "k3", "grpo"),
    ("3 use", f"{SOLVED}-js", "grpo"),
    ("4 direction", "k2", "k3"),
    ("4 direction", "k3_is", "k3"),
    ("4 direction", f"{SOLVED}-reverse_kl", f"{SOLVED}-forward_kl"),
)
"""Hypotheses of the protocol: pass@32 of the first family minus pass@32 of the second, at equal mean."""
Start = Mapping[str, Evaluated]


def families(more: Sequence[Arm | Made] = ()) -> dict[str, list[str]]:
    """The names of the evaluations on each family's frontier; more: the arms of experiment E that can be made."""
    anchored: dict[str, list[str]] = {}
    for arm in (*arms(), *more):
        if arm.family not in FREE and arm.family not in ("exp_only", "dph_js"):
            anchored.setdefault(arm.family, [*BEGINS.get(arm.family, (ZERO,))]).append(arm.name)
    return FREE | anchored


BEGINS = {"grpo-24": (), "averaged": (), "soup": (), "beyond": ("grpo-2.5e-5",)}
"""Where a family's frontier begins, if not with GRPO at the same learning rate and without an anchor."""
CANDIDATES = {
    "1 recent": ("recent-js", "grpo"),
    "2 recent and fixed": ("recent-solved-js", "grpo-24"),
    "3 raw": (f"{SOLVED}-raw", "grpo-24"),
    "4 raw, distinct": ("distinct-raw", "grpo-24"),
    "5 two anchors": (f"k3-{SOLVED}-js", "grpo-24"),
    "6 beyond": ("beyond", "grpo"),
    "7 averaged": ("averaged", "grpo"),
    "8 soup": ("soup", "grpo-24"),
}
"""What experiment E may keep: a family, and GRPO with at least as many rollouts."""
ADDED = (
    ("2 recent and fixed", "recent-solved-js", f"{SOLVED}-js"),
    ("4 raw, distinct", "distinct-raw", f"{SOLVED}-raw"),
    ("5 two anchors", f"k3-{SOLVED}-js", "k3"),
    ("6 beyond", "beyond", "stops"),
)
"""Secondary comparisons of experiment E: what a part adds."""


LEAD = "distinct-raw-1"
"""What experiment F compares with families that draw as many responses."""
SECOND = "k3-24-0.3"
"""A strength of the second control, which is read against the first one too; not planned."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is compared in an experiment."""

    families: Mapping[str, Sequence[str]]
    comparisons: Sequence[tuple[str, str, str]]
    tested: int
    """Differences are called established at the level that holds for so many comparisons together."""
    title: str


def _follow() -> Design:
    every = families((*made(), *follow_arms())) | {name: [ZERO, *arms] for name, arms in DELETED.items()}
    own = {name: every[name] for name in every if name in (*FREE, *NEEDED) or name not in families()}
    pairs = [(name, family, other) for name, (family, grpo) in CANDIDATES.items() for other in ("mix", grpo)]
    wish = [("the wish", family, "base") for family, _ in CANDIDATES.values()]
    return Design(
        own, (*pairs, *ADDED, *wish), len(CANDIDATES), "Countdown, experiment E: each family from weak to strong"
    )


def place(evaluated: Evaluated) -> tuple[float, float]:
    """Mean of samples and pass@32."""
    return mean_of(evaluated.counts), pass_of(evaluated.counts, K)


def target_of(start: Start) -> float | None:
    """The mean at which families of a start are compared: GRPO at 5e-5, over its two training seeds."""
    both = [start[name] for name in (TARGET, f"{TARGET}-again") if name in start]
    return fmean(mean_of(one.counts) for one in both) if len(both) == 2 else None


def at_target(start: Start, family: str, among: Mapping[str, Sequence[str]] | None = None) -> float | None:
    """pass@32 of a family at the target's mean; None if an arm is missing or no line of its frontier reaches it. The
    base model has one pass@32. among: the families; by default those of experiment B."""
    mean = target_of(start)
    if mean is None or ZERO not in start or "base" not in start:
        return None
    if family == "base":
        return place(start["base"])[1]
    if family == "mix":
        return mix_at(start[ZERO].counts, start["base"].counts, mean, K)
    if family == "grpo":  # over both training seeds
        both = [_on_frontier(start, FREE[name], mean) for name in ("grpo", "grpo-again")]
        known = [value for value in both if value is not None]
        return fmean(known) if known else None
    return _on_frontier(start, (among or families())[family], mean)


def _on_frontier(start: Start, names: Sequence[str], mean: float) -> float | None:
    if any(name not in start for name in names):
        return None
    return interpolated([place(start[name]) for name in names], mean)


def verdict(differences: Sequence[float], tested: int = len(COMPARISONS)) -> tuple[str, str]:
    """Mean with Student's 95 % interval, and whether the difference is established: the interval at the level that
    holds for `tested` comparisons together (Bonferroni) excludes 0. Dashes for fewer than two differences."""
    if len(differences) < 2:
        return "–", "–"
    found, together = (student_interval(differences, level) for level in (0.95, 1 - 0.05 / tested))
    text = f"{found.estimate:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
    return text, "no" if together.low <= 0 <= together.high else "yes"


B = Design(families(), COMPARISONS, len(COMPARISONS), "Countdown: each family from weak to strong")
E = _follow()
_WIDE = {name: [arm.name for arm in confirm_arms() if arm.family == name] for name in ("grpo-24", "k3-24")}
F = Design({"distinct-raw": [LEAD], **_WIDE}, (), 1, "Countdown, experiment F")


def comparison_table(starts: Mapping[int, Start], design: Design = B) -> Iterator[str]:
    """The comparisons of the protocol, blocked by start."""
    yield "| hypothesis | pass@32 at the mean of GRPO 5e-5 | starts in range | difference | established |"
    yield "|---|---|---:|---:|---|"
    for hypothesis, one, other in design.comparisons:
        pairs = [tuple(at_target(start, name, design.families) for name in (one, other)) for start in starts.values()]
        differences = [100 * (a - b) for a, b in pairs if a is not None and b is not None]
        counted = f"{len(differences)} of {len(starts)}"
        yield "| " + " | ".join((hypothesis, f"{one} − {other}", counted, *verdict(differences, design.tested))) + " |"


def reading_table(starts: Mapping[int, Start], design: Design = B) -> Iterator[str]:
    """The comparisons with GRPO's learning rates in two more readings of "over both training seeds", which the protocol
    does not tell apart. `comparison_table` has the mean of what each seed's own lines have at the common mean, and in a
    start in which one seed's lines do not reach it, the other seed's. Here are the starts in which both do, and
    pass@32 of GRPO at 5e-5 over both seeds, whose mean is the common one by definition."""
    yield "| pass@32 at the mean of GRPO 5e-5 | starts | each seed's lines | both seeds in range | GRPO 5e-5 itself | |"
    yield "|---|---:|---:|---:|---:|---|"
    for _, one, other in design.comparisons:
        if other != "grpo":
            continue
        found: dict[str, list[float]] = {"each": [], "both": [], "itself": []}
        for start in starts.values():
            value, grpo = (at_target(start, name, design.families) for name in (one, other))
            if value is None or grpo is None:
                continue
            found["each"].append(100 * (value - grpo))
            lines = [_on_frontier(start, FREE[name], target_of(start) or 0.0) for name in ("grpo", "grpo-again")]
            found["both"] += [] if None in lines else [100 * (value - grpo)]
            found["itself"].append(100 * (value - fmean(place(start[n])[1] for n in (TARGET, f"{TARGET}-again"))))
        cells = [verdict(found[key])[0] for key in found]
        cells[1] += f", {len(found['both'])} starts"
        cells.append(f"established: {verdict(found['itself'], design.tested)[1]}")
        yield f"| {one} − {other} | {len(found['each'])} of {len(starts)} | " + " | ".join(cells) + " |"


def confirm_table(starts: Mapping[int, Start]) -> Iterator[str]:
    """Experiment F: pass@32 of the lead minus that of each family's frontier, which begins with the base model, at the
    lead's own mean."""
    frontiers: dict[str, list[str]] = {}
    for arm in confirm_arms():
        if arm.name != LEAD:
            frontiers.setdefault(arm.family, ["base"]).append(arm.name)
    yield f"| pass@32 at the mean of {LEAD} | starts in range | difference |"
    yield "|---|---:|---:|"
    for family, names in frontiers.items():
        pairs = [(place(one[LEAD]), [place(one[name]) for name in names]) for one in starts.values()]
        values = [(passed, interpolated(points, mean)) for (mean, passed), points in pairs]
        differences = [100 * (passed - other) for passed, other in values if other is not None]
        yield f"| {LEAD} − {family} | {len(differences)} of {len(starts)} | {verdict(differences)[0]} |"
    whole = f"{len(starts)} of {len(starts)}"
    for i, title in ((1, f"{LEAD} − base"), (0, f"{LEAD} − base, mean@64 in place of pass@32")):
        differences = [100 * (place(one[LEAD])[i] - place(one["base"])[i]) for one in starts.values()]
        yield f"| {title} | {whole} | {verdict(differences)[0]} |"
    pairs = [(place(one[SECOND]), [place(one[name]) for name in frontiers["grpo-24"]]) for one in starts.values()]
    found = [(passed, interpolated(points, mean)) for (mean, passed), points in pairs]
    differences = [100 * (passed - other) for passed, other in found if other is not None]
    counted = f"{len(differences)} of {len(starts)}"
    yield f"| {SECOND} − grpo-24, at the mean of {SECOND} | {counted} | {verdict(differences)[0]} |"


def arm_table(starts: Mapping[int, Start], design: Design = B) -> Iterator[str]:
    """Every evaluation over the starts that have it: levels, and distances to the base model and to the mix."""
    whole = [start for start in starts.values() if "base" in start]
    listed = ["base", "base-again", *(name for group in design.families.values() for name in group)]
    names = dict.fromkeys(name for start in whole for name in start)
    titles = (
        "model",
        "starts",
        "rollouts",
        "mean@64",
        "pass@8",
        "pass@32",
        "cover@¼ of 32",
        "solutions among 8 correct",
    )
    yield "| " + " | ".join((*titles, "1 − Σp²", "pass@32 − base", "pass@32 − mix")) + " |"
    yield "|---" + "|---:" * 10 + "|"
    for name in sorted(names, key=lambda name: (listed.index(name) if name in listed else len(listed), name)):
        yield _arm_row(name, [start for start in whole if name in start])
    both = [start for start in whole if ZERO in start]
    for b in (2, 4, 8) if both else ():
        points = [mixed(start[ZERO].counts, start["base"].counts, b, K) for start in both]
        change = _spread([passed - place(start["base"])[1] for (_, passed), start in zip(points, both, strict=True)])
        mean, passed = (f"{100 * fmean(point[i] for point in points):.1f}" for i in (0, 1))
        cells = (str(len(both)), f"{both[0][ZERO].rollouts:,}", mean, "", passed, "", "", "", change, "")
        yield f"| {ZERO} with {b} of 32 samples from the base | " + " | ".join(cells) + " |"


def _arm_row(name: str, here: Sequence[Start]) -> str:
    counts = [start[name].counts for start in here]
    levels = [[mean_of(one), pass_of(one, 8), pass_of(one, K), cover_of(one, COVER, K)] for one in counts]
    kinds = [pair for start in here if (pair := _kinds(start[name], start["base"]))]
    cells = [
        str(len(here)),
        f"{here[0][name].rollouts:,}",
        *(f"{100 * fmean(one):.1f}" for one in zip(*levels, strict=True)),
    ]
    cells += [f"{fmean(one):.2f}" for one in zip(*kinds, strict=True)] or ["", ""]
    cells.append("" if name == "base" else _spread([place(start[name])[1] - place(start["base"])[1] for start in here]))
    above = []
    for start in here if name != ZERO and not name.startswith("base") else ():
        mean, passed = place(start[name])
        free = mix_at(start[ZERO].counts, start["base"].counts, mean, K) if ZERO in start else None
        above += [] if free is None else [passed - free]
    few = f", {len(above)} in range" if above and len(above) < len(here) else ""
    return f"| {name} | " + " | ".join([*cells, _spread(above) + few if above else ""]) + " |"


def _spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over starts, in points."""
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):+.1f}{spread}"


def _kinds(one: Evaluated, base: Evaluated) -> tuple[float, float] | None:
    """Expected solutions among `CORRECT` correct samples, and the probability that two differ, over the problems with
    as many correct samples of the model and of the base model."""
    both = [own for own, other in zip(one.forms, base.forms, strict=True) if min(sum(own), sum(other)) >= CORRECT]
    return (fmean(distinct_among(own, CORRECT) for own in both), fmean(map(simpson, both))) if both else None


def figure(starts: Mapping[int, Start], file: Path, design: Design = B) -> None:
    """The frontiers, means over the starts that have every point of a family: mean of samples against pass@32."""
    from matplotlib.figure import Figure

    shown = Figure(figsize=(7.5, 5), layout="constrained")
    axes = shown.subplots()
    for family, names in design.families.items():
        whole = [start for start in starts.values() if all(name in start for name in names)]
        if whole and family != "grpo-again":
            points = [[place(start[name]) for name in names] for start in whole]
            xs, ys = ([100 * fmean(row[j][i] for row in points) for j in range(len(names))] for i in (0, 1))
            drawn = len(axes.lines)  # colours come again after ten lines, with another marker
            axes.plot(xs, ys, marker="osD^"[drawn // 10 % 4], markersize=4, label=f"{family} ({len(whole)} starts)")
    both = [start for start in starts.values() if ZERO in start and "base" in start]
    if both:
        points = [[mixed(start[ZERO].counts, start["base"].counts, b, K) for b in range(0, 17, 2)] for start in both]
        xs, ys = ([100 * fmean(row[j][i] for row in points) for j in range(9)] for i in (0, 1))
        axes.plot(xs, ys, color="grey", linestyle="--", label="GRPO mixed with base samples")
    axes.set(xlabel="mean@64, %", ylabel="pass@32, %", title=design.title)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    shown.savefig(file, dpi=150)
